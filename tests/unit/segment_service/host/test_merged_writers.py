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
