"""Runs the contract of ``StreamGateway`` on a real Pravega."""

from __future__ import annotations

import pytest

from tests.contract.plain_gateway_contract import PlainGatewayContract
from tests.interop.real_pravega import RealPravega


class TestRealPravega(PlainGatewayContract):
    tells_time = False

    @pytest.fixture
    def controller(self, real_pravega: RealPravega) -> str:
        return real_pravega.controller_uri
