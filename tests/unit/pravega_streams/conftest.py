"""Serves stores in memory over the wire, with resolvers that point at them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import Unavailable
from pravega_streams.connection.endpoints import Endpoint, WithoutTokens
from segment_service.host.listener import WireServer
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore


class ScriptedResolver(WithoutTokens):
    """Answers with the endpoints given, one further at every ``forget``; the last one stays."""

    def __init__(self, *endpoints: Endpoint | None) -> None:
        self.endpoints = list(endpoints)
        self.forgotten = 0

    async def resolve(self, segment: str) -> Endpoint:
        endpoint = self.endpoints[min(self.forgotten, len(self.endpoints) - 1)]
        if endpoint is None:
            raise Unavailable(f"nobody serves {segment}")
        return endpoint

    def forget(self, segment: str) -> None:
        self.forgotten += 1


@pytest.fixture
def segments() -> InMemorySegmentStore:
    return InMemorySegmentStore()


@pytest.fixture
async def server(segments: InMemorySegmentStore) -> AsyncIterator[WireServer]:
    made = WireServer(segments, InMemoryTableStore(segments), segments)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def endpoint(server: WireServer) -> Endpoint:
    return Endpoint("127.0.0.1", server.port)
