"""A connection that is kept for transaction after transaction, as a client of Spark's executors keeps it."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.services.host_counts import HostCounts
from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    MergeSegments,
    MergeSegmentsBatch,
    SegmentsBatchMerged,
    SegmentsMerged,
    SetupAppend,
)
from segment_service.host import append_processor
from segment_service.host.listener import WireServer
from segment_service.host.merged_writers import MergedWriters
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"


def transaction(number: int) -> str:
    return f"{SEGMENT}#transaction.{number:032x}"


async def written(client: WireClient, store: InMemorySegmentStore, number: int) -> str:
    """The segment of a transaction, with three bytes of a writer of its own."""
    segment, writer = transaction(number), b"%016d" % number
    await store.create_segment(segment)
    await client.call(SetupAppend(1, writer, segment), AppendSetup)
    await client.call(AppendBlockEnd(writer, 3, b"abc", 1, 1, 2), DataAppended)
    return segment


async def test_writers_of_merged_transactions_take_nobodys_room(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_processor, "writers_per_connection_max", 4)
    server.budgets.writers = HostCounts("writers", "are set up", 8, 4)
    await store.create_segment(SEGMENT)
    controller = await WireClient.connect(server.port)
    for number in range(10):
        first, second = [await written(client, store, 2 * number + one) for one in range(2)]
        if number % 2:
            for source in (first, second):
                await controller.call(MergeSegments(3, SEGMENT, source), SegmentsMerged)
        else:
            await controller.call(MergeSegmentsBatch(3, SEGMENT, (first, second)), SegmentsBatchMerged)
        assert (server.budgets.writers.total, len(server.budgets.merged_writers)) == (0, 0)
    assert (await store.get_info(SEGMENT)).length == 60
    await controller.close()


async def test_writers_that_stay_are_counted_once_and_given_back(
    server: WireServer, store: InMemorySegmentStore
) -> None:
    """That of a transaction that is open, one that is set up again for another one, and one of the stream itself."""
    client = await WireClient.connect(server.port)
    await store.create_segment(SEGMENT)
    await client.call(SetupAppend(1, b"s" * 16, SEGMENT), AppendSetup)
    for number in range(2):
        await store.create_segment(transaction(number))
        await client.call(SetupAppend(1, b"w" * 16, transaction(number)), AppendSetup)
    await client.call(MergeSegments(2, SEGMENT, transaction(0)), SegmentsMerged)
    assert server.budgets.writers.total == 2
    await client.call(AppendBlockEnd(b"w" * 16, 3, b"abc", 1, 1, 2), DataAppended)
    await client.close()
    await eventually(lambda: server.budgets.writers.total == 0)
    assert len(server.budgets.merged_writers) == 0


async def test_a_writer_with_appends_on_their_way_hears_of_them(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    segment = await written(client, store, 1)
    controller = await WireClient.connect(server.port)
    store.hold()
    controller.send(MergeSegments(3, SEGMENT, segment))
    await eventually(lambda: store.queued_operations == 1)
    client.send(AppendBlockEnd(b"%016d" % 1, 3, b"def", 1, 2, 4))
    await eventually(lambda: store.queued_operations == 2)
    store.release()
    await controller.expect(SegmentsMerged)
    reply = await asyncio.wait_for(client.reply(), 5)
    assert (type(reply).__name__, getattr(reply, "request_id", None)) == ("NoSuchSegment", 4)
    await controller.close()


def test_forgetting_a_writer_looks_at_no_other() -> None:
    """Connections that end give 10,000 writers back in one turn of the loop, and may all write to one transaction."""
    looks = 0

    class Holder:
        def segment_merged(self, segment: str, writer_id: bytes) -> None:
            """Hold nothing."""

        def __hash__(self) -> int:
            return id(self)

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return self is other

    merged, (first, second) = MergedWriters(), (Holder(), Holder())
    writers = [b"%016d" % number for number in range(100)]
    for holder in (first, second):
        for writer in writers:
            merged.set_up(transaction(1), holder, writer)
    for writer in writers:
        merged.forget(transaction(1), second, writer)
    assert looks == 0
    for writer in writers:
        merged.forget(transaction(1), first, writer)
    assert len(merged) == 0
