"""What the connector relies on, asked of a real Pravega."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.service_gateway import ServiceGateway
from tests.contract.stream_gateway_suite import StreamGatewayContract
from tests.interop.real_pravega import RealPravega


class TestRealPravega(StreamGatewayContract):
    @pytest.fixture
    def gateway(self, real_pravega: RealPravega) -> Iterator[ServiceGateway]:
        made = ServiceGateway(real_pravega.controller_uri)
        yield made
        made.close()
