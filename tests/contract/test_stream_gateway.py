"""Runs the contract of ``StreamGateway`` on the fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark.gateway.contract import StreamGateway
from tests.contract.stream_gateway_contract import StreamGatewayContract
from tests.support.fakes.stream_gateway import FakeGateway


class TestFakeGateway(StreamGatewayContract):
    @pytest.fixture
    def gateway(self, tmp_path: Path) -> StreamGateway:
        return FakeGateway(str(tmp_path))
