"""What the connector relies on, asked of a real Pravega."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.gateway.service import ServiceGateway
from tests.contract.plain_gateway_contract import PlainGatewayContract
from tests.interop.real_pravega import RealPravega


class TestRealPravega(PlainGatewayContract):
    @pytest.fixture
    def controller(self, real_pravega: RealPravega) -> str:
        return real_pravega.controller_uri

    @pytest.fixture
    def gateway(self, controller: str) -> Iterator[ServiceGateway]:
        made = ServiceGateway(controller)
        yield made
        made.close()
