"""Runs the suite of ``RequestStream`` on its adapters."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.model.auto_scale_event import AutoScaleEvent
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from pravega_common.wire import commands as c
from segment_service.traffic.request_stream import WireRequestStream
from tests.contract.request_stream_contract import SEGMENT, RequestStreamContract, report
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.request_stream import InMemoryRequestStream
from tests.support.store_in_process import RunningStore, running_store

Stored = Callable[[], Awaitable[Sequence[AutoScaleEvent]]]


class TestInMemory(RequestStreamContract):
    @pytest.fixture
    def stream(self) -> InMemoryRequestStream:
        return InMemoryRequestStream(SEGMENT)

    @pytest.fixture
    def stored(self, stream: InMemoryRequestStream) -> Stored:
        async def events() -> Sequence[AutoScaleEvent]:
            return stream.events[SEGMENT]

        return events

    @pytest.fixture
    def seal(self, stream: InMemoryRequestStream) -> Callable[[], Awaitable[None]]:
        async def sealed() -> None:
            stream.sealed.add(SEGMENT)

        return sealed


class TestWire(RequestStreamContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RunningStore]:
        async with running_store(tmp_path) as store:
            await store.client.call(
                SEGMENT, lambda rid: c.CreateSegment(rid, SEGMENT, 0, 0, "", 0), c.SegmentCreated, idempotent=False
            )
            yield store

    @pytest.fixture
    def stream(self, store: RunningStore) -> WireRequestStream:
        return WireRequestStream(store.cpo, 2, "store")

    @pytest.fixture
    def stored(self, store: RunningStore) -> Stored:
        async def events() -> Sequence[AutoScaleEvent]:
            read = await store.client.call(
                SEGMENT, lambda rid: c.ReadSegment(SEGMENT, 0, 100_000, "", rid), c.SegmentRead, idempotent=True
            )
            return list(_events(bytes(read.data)))

        return events

    @pytest.fixture
    def seal(self, store: RunningStore) -> Callable[[], Awaitable[None]]:
        async def sealed() -> None:
            await store.client.call(
                SEGMENT, lambda rid: c.SealSegment(rid, SEGMENT, ""), c.SegmentSealed, idempotent=True
            )

        return sealed

    async def test_a_store_that_starts_again_is_the_same_writer(self, store: RunningStore, stored: Stored) -> None:
        for number in range(3):
            await WireRequestStream(store.cpo, 2, "store").append(SEGMENT, [report(number)])
        await WireRequestStream(store.cpo, 2, "other").append(SEGMENT, [report(9)])
        assert [event.segment_id for event in await stored()] == [0, 1, 2, 9]

    async def test_without_an_owner_nothing_is_sent(self) -> None:
        with pytest.raises(Unavailable, match="no segment store owns"):
            await WireRequestStream(InMemoryCPO(), 2, "store").append(SEGMENT, [report(1)])

    async def test_an_owner_that_is_gone_is_unavailable(self) -> None:
        cpo = await _owned_by(1)
        with pytest.raises(Unavailable, match="no connection"):
            await WireRequestStream(cpo, 1, "store").append(SEGMENT, [report(1)])

    async def test_a_closed_connection_leaves_the_outcome_open(self) -> None:
        async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        cpo = await _owned_by(server.sockets[0].getsockname()[1])
        with pytest.raises(UnknownOutcome):
            await WireRequestStream(cpo, 1, "store").append(SEGMENT, [report(1)])
        server.close()


async def _owned_by(port: int) -> InMemoryCPO:
    cpo = InMemoryCPO()
    await cpo.renew_lease(SEGMENT_STORE_KIND, "owner", Member("127.0.0.1", port).to_payload(), 10_000)
    await cpo.put_assignment(0, {0: "owner"})
    return cpo


def _events(data: bytes) -> Sequence[AutoScaleEvent]:
    found, position = [], 0
    while position < len(data):
        kind, length = struct.unpack_from(">ii", data, position)
        assert kind == 0
        found.append(AutoScaleEvent.from_bytes(data[position + 8 : position + 8 + length]))
        position += 8 + length
    return found
