"""The same, asked of our own services without their extension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.standalone.process import StandaloneProcess
from tests.contract.plain_gateway_contract import PlainGatewayContract


class TestOwnServicesWithoutExtension(PlainGatewayContract):
    @pytest.fixture
    def controller(self, own_without_extension: StandaloneProcess) -> str:
        return own_without_extension.controller_uri

    @pytest.fixture
    def gateway(self, controller: str) -> Iterator[ServiceGateway]:
        made = ServiceGateway(controller)
        yield made
        made.close()
