"""The gateway's contract on the twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark.gateway import StreamGateway
from pravega_spark.in_memory_gateway import InMemoryGateway
from tests.contract.stream_gateway_suite import StreamGatewayContract


class TestInMemoryGateway(StreamGatewayContract):
    @pytest.fixture
    def gateway(self, tmp_path: Path) -> StreamGateway:
        return InMemoryGateway(str(tmp_path))
