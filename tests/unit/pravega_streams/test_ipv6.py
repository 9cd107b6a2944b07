"""Reaches a controller and a segment store at an IPv6 address."""

from __future__ import annotations

import asyncio
import socket
from concurrent import futures

import grpc
import pytest

from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from pravega_streams.client import StreamClient
from pravega_streams.connection.asynchronous import WireConnection
from pravega_streams.connection.endpoints import Endpoint
from segment_service.host.listener import WireServer
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore

SEGMENT = "s/t/0.#epoch.0"


def has_ipv6() -> bool:
    """Whether this machine has the loopback address ::1."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")


@pytest.mark.parametrize("text", ["[::1]:9090", "localhost:9090", "10.0.0.1:1"])
def test_an_endpoint_survives_its_text(text: str) -> None:
    assert str(Endpoint.parse(text)) == text


def test_an_endpoint_without_brackets_is_understood() -> None:
    assert Endpoint.parse("::1:9090") == Endpoint.parse("[::1]:9090") == Endpoint("::1", 9090)


class Controller(ControllerServiceServicer):
    """Knows one store of all segments, whose address has no brackets, as a Pravega sends it."""

    def __init__(self, store_port: int) -> None:
        self._store_port = store_port

    def getURI(self, request: pb.SegmentId, context: grpc.ServicerContext) -> pb.NodeUri:
        return pb.NodeUri(endpoint="::1", port=self._store_port)


@needs_ipv6
async def test_a_cluster_at_an_ipv6_address_serves_its_clients() -> None:
    segments = InMemorySegmentStore()
    store = WireServer(segments, InMemoryTableStore(segments), segments, host="::1")
    await store.start()
    controller = grpc.server(futures.ThreadPoolExecutor(2))
    add_ControllerServiceServicer_to_server(Controller(store.port), controller)
    port = controller.add_insecure_port("[::1]:0")
    controller.start()
    try:
        await segments.create_segment(SEGMENT)
        with StreamClient(f"tcp://[::1]:{port}") as client:
            assert (await asyncio.to_thread(client.segments.info, SEGMENT)).length == 0
            owner = client.segments.endpoints.known(SEGMENT)
        assert owner == Endpoint("::1", store.port)
        (await WireConnection.open(owner)).close("the test has seen enough")
    finally:
        controller.stop(None)
        await store.stop()
