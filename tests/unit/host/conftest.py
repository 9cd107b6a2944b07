from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from segment_service.contracts.in_memory import InMemorySegmentStore
from segment_service.contracts.in_memory_tables import InMemoryTableStore
from segment_service.host.listener import WireServer
from tests.support.wire_client import WireClient


@pytest.fixture
async def store() -> InMemorySegmentStore:
    return InMemorySegmentStore()


@pytest.fixture
async def server(store: InMemorySegmentStore) -> AsyncIterator[WireServer]:
    made = WireServer(store, InMemoryTableStore(store), store)
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
