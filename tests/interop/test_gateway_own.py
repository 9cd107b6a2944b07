"""Runs the contract of ``StreamGateway`` on our own services without their extension."""

from __future__ import annotations

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.contract.plain_gateway_contract import PlainGatewayContract


class TestOwnServicesWithoutExtension(PlainGatewayContract):
    @pytest.fixture
    def controller(self, own_without_extension: StandaloneProcess) -> str:
        return own_without_extension.controller_uri
