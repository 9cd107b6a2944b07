"""Checks index segments of a store process that is killed while it writes them, and of a cluster under real writers."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ContainerNotHosted, SegmentNotFound
from pravega_common.event_index import index_record_bytes
from pravega_common.names import index_segment_name, segment_name
from pravega_common.wire.commands import (
    GetStreamSegmentInfo,
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    SegmentRead,
    StreamSegmentInfo,
    TruncateSegment,
)
from pravega_common.wire.commands import SegmentTruncated as Truncated
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from pravega_streams.segment.event_index import EventIndex
from segment_service.event_index import indexer
from tests.integration.test_container_process import BLOCK_BYTES, SEGMENT, Writer
from tests.support.cluster import running_cluster
from tests.support.event_index import Truth, parse
from tests.support.eventually import eventually, eventually_blocking
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer
from tests.support.store_process import StoreProcess
from tests.support.wire_client import WireClient

INDEX = index_segment_name(SEGMENT)
settle_time_max_s = 30.0


@pytest.fixture
async def store(tmp_path: Path, own_redis: RedisServer) -> AsyncIterator[StoreProcess]:
    store = StoreProcess(tmp_path, own_redis.address)
    yield store
    await store.close()


async def check_index(store: StoreProcess, start: int = 0) -> int:
    """Waits until the index has caught up; returns how many records it has.

    Every record is the end of a block, and counts the blocks before it.
    """
    client = await WireClient.connect(store.port)
    length, records, truth = 0, [], Truth([0], [0])

    async def is_complete() -> bool:
        nonlocal length, records, truth
        info = await client.call(GetStreamSegmentInfo(1, INDEX), StreamSegmentInfo)
        data = await read(client, INDEX, info.start_offset, info.write_offset)
        length = (await client.call(GetStreamSegmentInfo(2, SEGMENT), StreamSegmentInfo)).write_offset
        blocks = length // BLOCK_BYTES
        truth = Truth([BLOCK_BYTES * number for number in range(blocks + 1)], list(range(blocks + 1)))
        records = parse(data)
        truth.check(records)
        return bool(records) and records[-1].length == length

    await eventually(is_complete, "the whole index", settle_time_max_s)
    for target in range(start, length, max(1, length // 50)):
        located = (await client.call(LocateOffset(3, SEGMENT, target), OffsetLocated)).offset
        truth.check_located(records, target, located)
    await client.close()
    return len(records)


async def read(client: WireClient, segment: str, start: int, end: int) -> bytes:
    content = b""
    while len(content) < end - start:
        request = ReadSegment(segment, start + len(content), end - start - len(content), "", 5)
        content += bytes((await client.call(request, SegmentRead)).data)
    return content


@pytest.mark.parametrize(
    "failpoint",
    [
        f"{indexer.BEFORE_CREATE}=kill:1",
        f"{indexer.BEFORE_APPEND}=kill:1",
        f"{indexer.BEFORE_APPEND}=kill:4",
        "durable_log.before_frame_is_sent=kill:60",
        "durable_log.frame_durable_before_commit=kill:60",
    ],
)
async def test_killed_while_the_index_is_written(store: StoreProcess, failpoint: str) -> None:
    writer = Writer(store)
    await store.start(failpoint)
    assert not await writer.write_until(50_000), f"{failpoint} was not reached"
    assert store.process is not None and await store.process.wait() == -9
    await store.start()
    assert await writer.write_until(writer.acknowledged + 500), store.log_tail()
    assert await check_index(store) >= 10
    assert await store.stop() == 0


async def test_the_next_owner_completes_what_a_killed_one_left(store: StoreProcess) -> None:
    """The records of the last blocks come of the recovery alone: no block is written after the kill."""
    writer = Writer(store)
    await store.start()
    for _ in range(2):
        assert await writer.write_until(writer.acknowledged + 200)
        await store.kill()
        await store.start()
        await hosted(store)
        await check_index(store)


async def test_the_index_of_a_truncated_segment_after_a_kill(store: StoreProcess) -> None:
    writer = Writer(store)
    await store.start(f"{indexer.BEFORE_TRUNCATE}=kill:1")
    assert await writer.write_until(1_000)
    await check_index(store)
    client = await WireClient.connect(store.port)
    start = 600 * BLOCK_BYTES
    await client.call(TruncateSegment(1, SEGMENT, start), Truncated)
    assert store.process is not None and await store.process.wait() == -9
    await store.start()
    await hosted(store)
    await check_index(store, start)
    client = await WireClient.connect(store.port)
    await client.call(TruncateSegment(1, SEGMENT, start + BLOCK_BYTES), Truncated)

    async def is_truncated() -> bool:
        return (await client.call(GetStreamSegmentInfo(1, INDEX), StreamSegmentInfo)).start_offset > 0

    await eventually(is_truncated, "the index's truncation", settle_time_max_s)
    await check_index(store, start + BLOCK_BYTES)
    await client.close()


async def hosted(store: StoreProcess) -> None:
    """Returns when the container of the segment serves."""
    client = await WireClient.connect(store.port)

    async def is_served() -> bool:
        client.send(GetStreamSegmentInfo(1, SEGMENT))
        return isinstance(await client.reply(), StreamSegmentInfo)

    await eventually(is_served, "the container", settle_time_max_s)
    await client.close()


# ---- a cluster -------------------------------------------------------------------------------------------------------

SCOPE, STREAM = "index", "events"


@pytest.mark.slow
def test_a_cluster_under_writers_transactions_and_kills(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        with StreamClient(cluster.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM)
        stop = threading.Event()
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=guarded, args=(write, cluster.controller_uri, stop, failures))
            for write in (write_events, write_transactions)
        ]
        for thread in threads:
            thread.start()
        began_ms = time.time_ns() // 1_000_000
        for _ in range(2):
            # Real writers on a real cluster: load before each kill, and after the last one.
            time.sleep(1.5)
            pid = cluster.kill("segment-store-0")
            cluster.wait_restarted("segment-store-0", pid)
        time.sleep(1.0)
        stop.set()
        for thread in threads:
            thread.join(timeout=120)
        assert not failures, failures
        with StreamClient(cluster.controller_uri) as client:
            check_stream(client, began_ms)


def guarded(write: object, controller_uri: str, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        with StreamClient(controller_uri) as client:
            write(client, stop)  # type: ignore[operator]
    except BaseException as error:
        failures.append(error)


def write_events(client: StreamClient, stop: threading.Event) -> None:
    with EventWriter(client, SCOPE, STREAM) as writer:
        while not stop.is_set():
            for number in range(100):
                writer.write(b"x" * (number * 7), "k")
            writer.flush()


def write_transactions(client: StreamClient, stop: threading.Event) -> None:
    while not stop.is_set():
        transaction = TransactionalWriter(client, SCOPE, STREAM).begin()
        for number in range(20):
            transaction.write(b"y" * number, "k")
        transaction.flush()
        transaction.commit()


def check_stream(client: StreamClient, began_ms: int) -> None:
    (segment_id,) = client.tail_cut(SCOPE, STREAM)
    name = segment_name(SCOPE, STREAM, segment_id)
    index = caught_up(client, name)
    events = [(event.offset, len(event.data)) for event in read_events(client, SCOPE, STREAM)]
    ends = [0] + [offset + 8 + size for offset, size in events]
    truth = Truth(ends, list(range(len(ends))))
    info = client.segments.info(index_segment_name(name))
    assert info.length // index_record_bytes >= 10
    offset, total = 0, len(events)
    while offset < index.length:
        after = index.advance(offset, 500)
        assert after.is_exact
        assert after.events == truth.events_before(after.offset) - truth.events_before(offset)
        assert after.offset in ends and after.offset > offset
        offset = after.offset
    assert index.events_between(0, index.length).events == total
    assert index.offset_before_time(began_ms) == 0
    now_ms = time.time_ns() // 1_000_000
    assert index.offset_before_time(now_ms) == index.offset_at_time(now_ms) == index.length
    middle = (began_ms + now_ms) // 2
    assert 0 < index.offset_before_time(middle) <= index.offset_at_time(middle) <= index.length
    for wanted in (0, 1, total // 2, total):
        boundary = index.offset_of_event(wanted)
        assert truth.events_before(boundary.offset) == boundary.event_count <= wanted


def caught_up(client: StreamClient, name: str) -> EventIndex:
    found: list[EventIndex] = []

    def is_caught_up() -> bool:
        try:
            found[:] = [EventIndex.of(client.segments, name)]
        except (SegmentNotFound, ContainerNotHosted):
            return False
        return found[0].indexed_length == found[0].length

    eventually_blocking(is_caught_up, "the whole index", settle_time_max_s)
    return found[0]
