"""Holds every event source to the contract, the real one on a segment store behind a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from controller_service.event_processors.event_source import EventSource
from tests.contract.event_source_contract import BytesGone, EventSourceContract, MakeSource
from tests.support.event_world import EventWorld, event_world
from tests.support.fakes.event_source import InMemoryEventStream


class TestInMemoryEventSource(EventSourceContract):
    @pytest.fixture
    def stream(self) -> InMemoryEventStream:
        return InMemoryEventStream()

    @pytest.fixture
    def make(self, stream: InMemoryEventStream) -> MakeSource:
        return stream.source

    @pytest.fixture
    def bytes_gone(self, stream: InMemoryEventStream) -> BytesGone:
        async def gone() -> int:
            return sum(segment.start for segment in stream.segments)

        return gone


class TestWireEventSource(EventSourceContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[EventWorld]:
        async with event_world() as world:
            yield world

    @pytest.fixture
    async def make(self, world: EventWorld) -> AsyncIterator[MakeSource]:
        controller = world.parts.controller()
        await controller.start()
        made: list[EventSource] = []

        def make(reader_id: str) -> EventSource:
            made.append(world.source(controller, reader_id))
            return made[-1]

        yield make
        for source in made:
            await source.leave()
        await controller.stop()

    @pytest.fixture
    def bytes_gone(self, world: EventWorld) -> Iterator[BytesGone]:
        yield world.bytes_gone
