"""Runs the contract of ``StreamGateway`` on running services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.standalone.process import StandaloneProcess
from tests.contract.stream_gateway_contract import StreamGatewayContract
from tests.support.cluster import cluster

__all__ = ["cluster"]


class TestServiceGateway(StreamGatewayContract):
    @pytest.fixture
    def gateway(self, cluster: StandaloneProcess) -> Iterator[StreamGateway]:
        made = ServiceGateway(cluster.controller_uri)
        yield made
        made.close()
