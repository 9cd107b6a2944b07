from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from segment_service.host.listener import WireServer
from segment_service.host.refusals import refusals_per_peer_per_s_default
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.wire_client import WireClient


@pytest.fixture
async def store() -> InMemorySegmentStore:
    return InMemorySegmentStore()


@pytest.fixture
def refusals_per_peer_per_s() -> int:
    return refusals_per_peer_per_s_default


@pytest.fixture
async def server(store: InMemorySegmentStore, refusals_per_peer_per_s: int) -> AsyncIterator[WireServer]:
    made = WireServer(store, InMemoryTableStore(store), store, refusals_per_peer_per_s=refusals_per_peer_per_s)
    await made.start()
    yield made
    store.release()
    store.open_gate()
    await made.stop()
    assert made.failure is None


@pytest.fixture
async def client(server: WireServer) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(server.port)
    yield made
    await made.close()


@pytest.fixture(params=["fake", "container"])
async def any_server(request: pytest.FixtureRequest) -> AsyncIterator[WireServer]:
    """The wire server over the in-memory fakes, and over a real container with real tables."""
    if request.param == "fake":
        fake = InMemorySegmentStore()
        server = WireServer(fake, InMemoryTableStore(fake), fake)
        await server.start()
        yield server
        await server.stop()
        return
    kit = ContainerKit()
    container = await kit.open()
    server = WireServer(container, TableExtension(container), kit.back_pressure)
    await server.start()
    yield server
    await container.stop()
    await server.stop()
