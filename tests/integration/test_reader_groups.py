"""Reads streams with reader groups on real services: scale, death, checkpoints, truncation, the PyPI client too."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from pravega_common.errors import AlreadyExists, InvalidArgument, NotFound
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.async_client import AsyncStreamClient
from pravega_streams.client import StreamClient
from pravega_streams.controller.stream_lags import StreamLagClient
from pravega_streams.errors import ControllerRefused, EventsTruncated, ReaderOffline
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.readers.event_reader import EventReader
from pravega_streams.readers.group_state import TAIL
from pravega_streams.readers.reader_group import ReaderGroup
from tests.support.cluster import cluster
from tests.support.eventually import eventually
from tests.support.rust_client import rust_stream_manager

__all__ = ["cluster"]

SCOPE = "readers"
REFRESH_MS = 200
KEYS = 12
pytestmark = pytest.mark.timeout(300)
read_time_max_s = 60.0


@pytest.fixture(scope="module")
def writer_client(cluster: StandaloneProcess) -> Iterator[StreamClient]:
    with StreamClient(cluster.controller_uri) as made:
        made.controller.create_scope(SCOPE)
        yield made


@pytest.fixture
async def client(cluster: StandaloneProcess, writer_client: StreamClient) -> AsyncIterator[AsyncStreamClient]:
    async with AsyncStreamClient(cluster.controller_uri) as made:
        yield made


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def new_stream(client: StreamClient, segments: int) -> str:
    name = new_name("stream")
    for least in (segments, 1):
        configuration = StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10_000, 2, least))
        if not client.controller.create_stream(SCOPE, name, configuration):
            client.controller.update_stream(SCOPE, name, configuration)
    return name


async def new_group(client: AsyncStreamClient, *streams: str) -> ReaderGroup:
    return await client.create_reader_group(SCOPE, new_name("group"), streams, refresh_time_ms=REFRESH_MS)


@dataclass
class Log:
    """The events of all readers, as ``key/number``, in the order in which they were read."""

    events: list[str] = field(default_factory=list)

    def check(self, written: dict[str, int]) -> None:
        """Every event once, and those of each key in order."""
        assert {event: times for event, times in Counter(self.events).items() if times > 1} == {}
        found: dict[str, list[int]] = {key: [] for key in written}
        for event in self.events:
            key, _, number = event.partition("/")
            found[key].append(int(number))
        assert found == {key: list(range(count)) for key, count in written.items()}


def write(client: StreamClient, stream: str, written: dict[str, int], rounds: int) -> None:
    """Write ``rounds`` more events of every key."""
    with EventWriter(client, SCOPE, stream) as writer:
        for _ in range(rounds):
            for number in range(KEYS):
                key = f"k{number}"
                writer.write(f"{key}/{written.setdefault(key, 0)}".encode(), key)
                written[key] += 1


async def read_into(reader: EventReader, log: Log) -> None:
    async for event in reader.events():
        log.events.append(bytes(event).decode())


async def until_read(log: Log, written: dict[str, int]) -> None:
    await eventually(lambda: len(log.events) >= sum(written.values()), "all events", read_time_max_s)


async def read_written(reader: EventReader, log: Log, written: dict[str, int]) -> None:
    """Read until all that was written is in the log; the reader may be used further."""
    task = asyncio.create_task(read_into(reader, log))
    await until_read(log, written)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def scale(client: StreamClient, stream: str, segments: int) -> None:
    """Replace all segments by ``segments`` new ones."""
    sealed = [item.segment_id for item in client.controller.current_segments(SCOPE, stream)]
    ranges = [(number / segments, (number + 1) / segments) for number in range(segments)]
    client.controller.scale_stream(SCOPE, stream, sealed, ranges)


async def test_three_readers_read_everything_once_while_the_stream_scales(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream, log = new_stream(writer_client, 2), Log()
    written: dict[str, int] = {}
    group = await new_group(client, stream)
    readers = [await group.create_reader(f"r{number}") for number in range(3)]
    with pytest.raises(AlreadyExists):
        await group.create_reader("r1")
    tasks = [asyncio.create_task(read_into(reader, log)) for reader in readers]
    for segments in (4, 1, 3):
        await asyncio.to_thread(write, writer_client, stream, written, 30)
        await asyncio.to_thread(scale, writer_client, stream, segments)
    await asyncio.to_thread(write, writer_client, stream, written, 30)
    await until_read(log, written)
    assert await group.readers_online() == ["r0", "r1", "r2"]
    cuts = await group.get_stream_cuts()
    assert len(cuts[SCOPE, stream].offsets) == 3
    await asyncio.to_thread(writer_client.controller.seal_stream, SCOPE, stream)
    async with asyncio.timeout(read_time_max_s):
        await asyncio.gather(*tasks)
    log.check(written)
    assert all(reader.is_finished for reader in readers)
    for reader in readers:
        await reader.reader_offline()
    tail = await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream)
    assert (await group.get_stream_cuts())[SCOPE, stream].offsets == tail
    assert await group.delete()


async def test_a_reader_dies_and_another_one_comes(client: AsyncStreamClient, writer_client: StreamClient) -> None:
    stream, log = new_stream(writer_client, 4), Log()
    written: dict[str, int] = {}
    group = await new_group(client, stream)
    first, second = await group.create_reader("first"), await group.create_reader("second")
    staying = asyncio.create_task(read_into(second, log))
    await asyncio.to_thread(write, writer_client, stream, written, 20)
    dying = asyncio.create_task(read_into(first, log))
    await until_read(log, written)
    await first.refresh()
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await asyncio.to_thread(write, writer_client, stream, written, 20)
    await group.reader_offline("first")
    with pytest.raises(ReaderOffline):
        await first.refresh()
    with pytest.raises(ReaderOffline):
        await first.get_segment_slice()
    third = await group.create_reader("third")
    joined = asyncio.create_task(read_into(third, log))
    await until_read(log, written)
    log.check(written)
    await eventually(lambda: len(third._feeds) == 2 == len(second._feeds))
    for task, reader in ((staying, second), (joined, third)):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.reader_offline()
    assert await group.readers_online() == []


async def test_a_mixed_group_with_the_pypi_client_reads_everything_once(
    client: AsyncStreamClient, cluster: StandaloneProcess, writer_client: StreamClient
) -> None:
    stream, log = new_stream(writer_client, 4), Log()
    written: dict[str, int] = {}
    manager = rust_stream_manager(cluster.controller_uri)
    name = new_name("group")
    theirs = manager.create_reader_group(name, SCOPE, stream)
    group = await client.open_reader_group(SCOPE, name)
    assert group.configuration.refresh_time_ms == 3000
    ours = await group.create_reader("ours")
    other = theirs.create_reader("theirs")

    async def read_theirs() -> None:
        while True:
            piece = await other.get_segment_slice_async()
            if piece is not None:
                log.events += [event.data().decode() for event in piece]
                other.release_segment(piece)

    tasks = [asyncio.create_task(read_into(ours, log)), asyncio.create_task(read_theirs())]
    await asyncio.to_thread(write, writer_client, stream, written, 30)
    await until_read(log, written)
    await asyncio.to_thread(scale, writer_client, stream, 5)
    await asyncio.to_thread(write, writer_client, stream, written, 30)
    await until_read(log, written)
    assert await group.readers_online() == ["ours", "theirs"]
    await group.initiate_checkpoint("mixed")
    cuts = await group.wait_for_checkpoint("mixed")
    assert len(cuts[SCOPE, stream].offsets) == 5
    await asyncio.sleep(11)  # both give back and take segments after ten seconds at the latest
    assert 2 <= len(ours._feeds) <= 3
    await asyncio.to_thread(write, writer_client, stream, written, 30)
    await until_read(log, written)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    other.reader_offline()
    await asyncio.to_thread(write, writer_client, stream, written, 30)
    await until_read(log, written)
    log.check(written)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await ours.reader_offline()
    assert theirs.get_streamcut().to_str()


async def test_a_group_begins_again_at_a_checkpoint(client: AsyncStreamClient, writer_client: StreamClient) -> None:
    stream = new_stream(writer_client, 2)
    written: dict[str, int] = {}
    group = await new_group(client, stream)
    reader, log = await group.create_reader("r"), Log()
    task = asyncio.create_task(read_into(reader, log))
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    await until_read(log, written)
    await group.initiate_checkpoint("half")
    cut = (await group.wait_for_checkpoint("half"))[SCOPE, stream]
    assert await group.list_checkpoints() == {"half": True}
    before = len(log.events)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    await until_read(log, written)
    assert writer_client.controller.is_cut_valid(SCOPE, stream, cut.offsets)
    await group.reset_to_checkpoint("half")
    with pytest.raises(ReaderOffline):
        await task
    again = Log()
    async with await group.create_reader("r") as second:
        task = asyncio.create_task(read_into(second, again))
        await eventually(lambda: len(again.events) >= before, "what was read before", read_time_max_s)
        assert sorted(again.events) == sorted(log.events[before:])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_group_begins_again_at_a_checkpoint_between_segments_that_were_cut_anew(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    """One of 2 segments is read and replaced, the other one is not, and of the 3 that follow one waits for it."""
    stream, log = new_stream(writer_client, 2), Log()
    written: dict[str, int] = {}
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    await asyncio.to_thread(scale, writer_client, stream, 3)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    group = await client.create_reader_group(
        SCOPE, new_name("group"), [stream], refresh_time_ms=REFRESH_MS, retention=ReaderGroupRetention.MANUAL
    )
    async with await group.create_reader("r") as reader:
        held = await reader.get_segment_slice(read_time_max_s)
        assert held is not None
        segments_read: set[str] = set()
        while len(segments_read) < 2:
            piece = await reader.get_segment_slice(read_time_max_s)
            assert piece is not None
            log.events += [bytes(event).decode() for event in piece]
            segments_read.add(piece.segment)
            reader.release_segment(piece)
        await group.initiate_checkpoint("torn")
        await reader.refresh()
        cut = (await group.wait_for_checkpoint("torn"))[SCOPE, stream]
        assert sorted(cut.offsets.values())[0] == -1, "one segment is not reached"
        assert writer_client.controller.is_cut_valid(SCOPE, stream, cut.offsets)
        await group.publish_cuts()
    await group.reset_to_checkpoint("torn")
    async with await group.create_reader("r") as reader:
        await read_written(reader, log, written)
        log.check(written)


async def test_a_group_reads_between_two_cuts(client: AsyncStreamClient, writer_client: StreamClient) -> None:
    stream, log = new_stream(writer_client, 2), Log()
    written: dict[str, int] = {}
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    start = await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    later = await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream)
    await asyncio.to_thread(scale, writer_client, stream, 3)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    end = await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    group = await client.create_reader_group(
        SCOPE, new_name("group"), {stream: start}, end={stream: end}, refresh_time_ms=REFRESH_MS
    )
    async with await group.create_reader("r") as reader, asyncio.timeout(read_time_max_s):
        await read_into(reader, log)
    found = Counter(log.events)
    assert found == Counter(f"k{key}/{number}" for key in range(KEYS) for number in range(5, 15))
    assert (await group.get_stream_cuts())[SCOPE, stream].offsets == end
    with pytest.raises(InvalidArgument, match="lies before"):
        await client.create_reader_group(SCOPE, new_name("group"), {stream: later}, end={stream: start})


async def test_a_group_at_the_tail_reads_what_comes(client: AsyncStreamClient, writer_client: StreamClient) -> None:
    stream, log = new_stream(writer_client, 2), Log()
    written: dict[str, int] = {}
    await asyncio.to_thread(write, writer_client, stream, written, 3)
    group = await client.create_reader_group(SCOPE, new_name("group"), {stream: TAIL})
    async with await group.create_reader("r") as reader:
        await asyncio.to_thread(write, writer_client, stream, written, 2)
        task = asyncio.create_task(read_into(reader, log))
        await eventually(lambda: len(log.events) == 2 * KEYS, "all events", read_time_max_s)
        assert {event.partition("/")[2] for event in log.events} == {"3", "4"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_was_truncated_is_said_and_passed_over(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream = new_stream(writer_client, 1)
    written: dict[str, int] = {}
    group = await new_group(client, stream)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    await asyncio.to_thread(scale, writer_client, stream, 2)
    await asyncio.to_thread(write, writer_client, stream, written, 5)
    cut = await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream)
    await asyncio.to_thread(writer_client.controller.truncate_stream, SCOPE, stream, cut)
    await asyncio.to_thread(write, writer_client, stream, written, 1)
    errors: list[EventsTruncated] = []
    events: list[bytes] = []
    async with await group.create_reader("r") as reader, asyncio.timeout(read_time_max_s):
        while len(events) < KEYS:
            try:
                piece = await reader.get_segment_slice()
            except EventsTruncated as error:
                errors.append(error)
                continue
            if piece is not None:
                events += [bytes(event) for event in piece]
                reader.release_segment(piece)
    assert sorted(events) == sorted(f"k{number}/10".encode() for number in range(KEYS))
    assert [error.next_offset is None for error in errors] == [True, False, False]


async def test_slices_are_views_and_come_again_unless_released(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream = new_stream(writer_client, 1)
    written: dict[str, int] = {}
    group = await new_group(client, stream)
    await asyncio.to_thread(write, writer_client, stream, written, 3)
    reader = await group.create_reader("r")
    piece = await reader.get_segment_slice()
    assert piece is not None
    first = next(piece)
    assert isinstance(first.data, memoryview) and bytes(first) == b"k0/0"
    reader.release_segment(piece)
    piece = await reader.get_segment_slice()
    assert piece is not None and piece.position == first.next_offset
    second = next(piece)
    reader.release_segment_at(piece, second.offset)
    piece = await reader.get_segment_slice()
    assert piece is not None and bytes(next(piece)) == bytes(second)
    assert await reader.get_segment_slice(timeout_s=0.1) is None, "the segment's slice is out"
    assert len(piece.take_block()) == sum(8 + len(f"k{n % KEYS}/{n // KEYS}") for n in range(2, 3 * KEYS))
    await reader.reader_offline()
    async with await group.create_reader("r") as again:
        piece = await again.get_segment_slice()
        assert piece is not None and bytes(next(piece)) == bytes(second), "the slice was not released"
    with pytest.raises(ZeroDivisionError):
        async with await group.create_reader("r") as failing:
            async for event in failing.events():
                if bytes(event) == b"k3/0":
                    _ = 1 / 0
    async with await group.create_reader("r") as third:
        async for event in third.events():
            assert bytes(event) == b"k3/0", "an event whose handling failed comes again, those before it do not"
            break
    async with await group.create_reader("r") as fourth:
        async for event in fourth.events():
            assert bytes(event) == b"k4/0", "the reader left in order"
            break


async def test_retention_waits_for_a_group_before_it_has_a_reader(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream = new_name("stream")
    await asyncio.to_thread(
        writer_client.controller.create_stream, SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(1))
    )
    await client.create_reader_group(SCOPE, new_name("group"), [stream], retention=ReaderGroupRetention.AUTOMATIC)
    lag = StreamLagClient(client.controller.transport).describe([(SCOPE, stream)])[0]
    assert lag.subscribers[0].updated_ms


async def test_a_group_with_a_bad_cut_leaves_no_subscriber(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream = new_stream(writer_client, 1)
    with pytest.raises(InvalidArgument, match="are not of this stream"):
        await client.create_reader_group(
            SCOPE, new_name("group"), {stream: {99: 0}}, retention=ReaderGroupRetention.MANUAL
        )
    assert client._groups.subscribers(SCOPE, stream) == []


async def test_retention_waits_for_what_a_reset_group_reads_again(
    client: AsyncStreamClient, writer_client: StreamClient
) -> None:
    stream, name, log = new_stream(writer_client, 1), new_name("group"), Log()
    written: dict[str, int] = {}
    group = await client.create_reader_group(
        SCOPE, name, [stream], refresh_time_ms=REFRESH_MS, retention=ReaderGroupRetention.AUTOMATIC
    )
    elsewhere = await client.open_reader_group(SCOPE, name)
    await group.initiate_checkpoint("before")
    await asyncio.to_thread(write, writer_client, stream, written, 2)
    async with await group.create_reader("r") as reader:
        await read_written(reader, log, written)
        await reader.refresh()
    await group.publish_cuts()

    def behind_bytes() -> int | None:
        (described,) = writer_client.lags.describe([(SCOPE, stream)])
        (found,) = described.subscribers
        return found.behind_bytes

    assert await asyncio.to_thread(behind_bytes) == 0
    await group.reset_to_checkpoint("before")
    length = (await asyncio.to_thread(writer_client.tail_cut, SCOPE, stream))[0]
    assert await asyncio.to_thread(behind_bytes) == length > 0
    with pytest.raises(ControllerRefused, match="was reset since it was looked at"):
        await elsewhere.publish_cuts()
    await elsewhere.publish_cuts()
    assert await asyncio.to_thread(behind_bytes) == length


async def test_retention_waits_for_a_group(client: AsyncStreamClient, writer_client: StreamClient) -> None:
    stream = new_name("stream")
    written: dict[str, int] = {}
    configuration = StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(1))
    await asyncio.to_thread(writer_client.controller.create_stream, SCOPE, stream, configuration)
    name = new_name("group")
    group = await client.create_reader_group(
        SCOPE, name, [stream], refresh_time_ms=REFRESH_MS, retention=ReaderGroupRetention.AUTOMATIC
    )
    assert client._groups.subscribers(SCOPE, stream) == [f"{SCOPE}/{name}"]
    joined = await client.create_reader_group(SCOPE, name, [stream])
    await joined.publish_cuts()
    await asyncio.to_thread(write, writer_client, stream, written, 2)
    log = Log()
    async with await group.create_reader("r") as reader:
        await read_written(reader, log, written)
        await reader.refresh()
    await group.publish_cuts()
    await group.publish_cuts()
    assert (await client.open_reader_group(SCOPE, name)).configuration == group.configuration
    assert await client.delete_reader_group(SCOPE, name)
    assert client._groups.subscribers(SCOPE, stream) == []
    with pytest.raises(NotFound):
        await client.open_reader_group(SCOPE, name)
    assert list(itertools.islice(log.events, 1)) == ["k0/0"]
