"""Reads segments of a store in memory over the wire: events across reads, scale events seen early, lost connections."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from controller_service.store.records import SegmentRecord
from controller_service.store.stream_cuts import PlacedCut, is_valid
from pravega_common.errors import (
    AlreadyExists,
    DataCorruption,
    InvalidArgument,
    NotFound,
    SegmentNotFound,
    StreamNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets, SegmentRange, Successor
from pravega_common.names import segment_name, segments_per_stream_max
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.owned_answer import answer_of_owner
from pravega_streams.errors import ControllerRefused, EventsTruncated, ReaderOffline
from pravega_streams.readers import cut_publisher, event_reader, segment_feed
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.cut_publisher import CutPublisher
from pravega_streams.readers.event_reader import EventReader
from pravega_streams.readers.group_state import HEAD, OTHER_CLIENT, GroupConfiguration
from pravega_streams.readers.reader_group import ReaderGroup
from pravega_streams.readers.slices import SegmentSlice
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient, TableDelta, TableItem
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.unit.pravega_streams.conftest import ScriptedResolver

SCOPE, STREAM = "s", "t"
S0, S1, S2 = (segment_name(SCOPE, STREAM, number) for number in (0, 1 << 32 | 1, 1 << 32 | 2))


def framed(*events: bytes) -> bytes:
    return b"".join(struct.pack(">ii", 0, len(event)) + event for event in events)


@dataclass
class FakeStream:
    """A stream that begins with segment 0; what follows and what is open is set by the test.

    Nothing is known of the segments ``forgotten``. Every name but those ``deleted`` is a stream like that.
    """

    open: list[int] = field(default_factory=lambda: [0])
    following: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    head: SegmentOffsets = field(default_factory=lambda: {0: 0})
    forgotten: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def check_there(self, stream: str) -> None:
        if stream in self.deleted:
            raise NotFound(f"there is no stream {stream}")

    async def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        self.check_there(stream)
        return self.head

    async def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return [SegmentRange(scope, stream, item, 0.0, 1.0) for item in self.open]

    async def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        self.check_there(stream)
        if segment_id in self.forgotten:
            raise NotFound(f"segment {segment_id} of stream {stream} was truncated")
        found = self.following.get(segment_id, {})
        return [Successor(SegmentRange(scope, stream, item, 0.0, 1.0), before) for item, before in found.items()]

    async def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        self.check_there(stream)
        return bool(cut)

    async def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        if min(start) > max(end) or any(offset > end.get(item, offset) for item, offset in start.items()):
            raise InvalidArgument(f"cut {end} lies before {start}")
        return sorted({*start, *end})


class TablesAway(TableClient):
    """Tables whose store does not take as many puts as it is set to, after it took ``good_puts``, and loses answers."""

    good_puts = 0
    puts_to_refuse = 0
    when_lost: Callable[[], Awaitable[object]] | None = None
    """Makes the store take a put without an answer, and happens before the client looks again."""
    looks_to_refuse = 0
    """Looks at what changed for which the store is away."""

    async def delta(self, segment: str, position: int, entries_max: int) -> TableDelta:
        if self.looks_to_refuse:
            self.looks_to_refuse -= 1
            raise Unavailable("the store is away")
        return await super().delta(segment, position, entries_max)

    async def put(self, segment: str, items: list[TableItem]) -> list[int]:  # type: ignore[override]
        if self.good_puts:
            self.good_puts -= 1
        elif self.puts_to_refuse:
            self.puts_to_refuse -= 1
            raise Unavailable("the store is away")
        versions = await super().put(segment, items)
        if (meanwhile := self.when_lost) is not None:
            self.when_lost = None
            await meanwhile()
            raise UnknownOutcome("the answer was lost")
        return versions


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
async def tables(endpoint: Endpoint) -> AsyncIterator[TablesAway]:
    requests = RawClient(ScriptedResolver(endpoint))
    yield TablesAway(requests)
    requests.close()


@pytest.fixture
async def group(
    endpoint: Endpoint, segments: InMemorySegmentStore, stream: FakeStream, tables: TablesAway
) -> AsyncIterator[ReaderGroup]:
    await segments.create_segment(S0)
    resolver = ScriptedResolver(endpoint)
    requests = RawClient(resolver)
    cluster = ReaderCluster(stream, requests, tables, resolver)
    yield await ReaderGroup(cluster, SCOPE, "g").create(GroupConfiguration({(SCOPE, STREAM): HEAD}, {}, 20))
    requests.close()


@pytest.fixture
async def reader(group: ReaderGroup) -> AsyncIterator[EventReader]:
    made = await group.create_reader("r")
    yield made
    await made.reader_offline()


async def take(reader: EventReader, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(20):
        async for event in reader.events():
            found.append(bytes(event))
            if len(found) == count:
                break
    return found


async def next_slice(reader: EventReader) -> SegmentSlice:
    async with asyncio.timeout(20):
        while (piece := await reader.get_segment_slice()) is None:
            pass
    return piece


async def test_a_start_or_end_in_segments_that_were_not_reached_is_refused(group: ReaderGroup) -> None:
    """As a reader group of the Java client has them in its cuts while it reads the last of two merged segments."""
    before = group.configuration
    for start in ({0: 12, 1 << 32 | 1: -1}, {0: -1}):
        with pytest.raises(InvalidArgument, match=r"cannot start at .* were not reached yet"):
            await group.reset({(SCOPE, STREAM): start})
        bounded = GroupConfiguration({(SCOPE, STREAM): HEAD}, {(SCOPE, STREAM): start})
        with pytest.raises(InvalidArgument, match=r"cannot end at .* were not reached yet"):
            await ReaderGroup(group._cluster, SCOPE, "bounded").create(bounded)
    assert (await group.open()).configuration == before


async def test_positions_and_cuts_that_are_none_are_refused_as_such(group: ReaderGroup) -> None:
    """One text would have been taken for a scope and a stream, letter by letter."""
    wrong: Any
    for wrong in ({"ab": {0: 1}}, {(SCOPE, STREAM, "more"): {0: 1}}, [(SCOPE, STREAM)]):
        with pytest.raises(InvalidArgument, match=r"cuts of a reset: .* (is no stream|is no mapping)"):
            await group.reset(wrong)
    reader = await group.create_reader("r")
    for wrong, said in (
        ({S0: -1}, f"last position in {S0}: -1 is not possible"),
        ({S0: "1"}, "is no whole number"),
        ({0: 5}, "0 is no text"),
        ([S0], "is no mapping"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            await group.reader_offline("r", wrong)
    await reader.refresh()


async def test_a_reset_names_the_stream_that_was_deleted(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """And says how to go on: no cut of the others alone is one of the group."""
    await segments.create_segment(segment_name(SCOPE, "old", 0))
    both = GroupConfiguration({(SCOPE, STREAM): HEAD, (SCOPE, "old"): HEAD})
    made = await ReaderGroup(group._cluster, SCOPE, "two").create(both)
    await made.initiate_checkpoint("c")
    stream.deleted.add("old")
    cuts = {name: cut.offsets for name, cut in (await made.wait_for_checkpoint("c")).items()}
    for again in (made.reset_to_checkpoint("c"), made.reset(cuts)):
        with pytest.raises(StreamNotFound, match=r"two cannot be reset: stream s/old does not exist; .* create"):
            await again
    start = {name: cut for name, cut in cuts.items() if name != (SCOPE, "old")}
    left = await ReaderGroup(made._cluster, SCOPE, "left").create(GroupConfiguration(start))
    assert (await left.get_stream_cuts())[SCOPE, STREAM].offsets == {0: 0}


async def test_a_group_with_a_bad_cut_is_not_registered(group: ReaderGroup) -> None:
    """A subscriber without a group would stay in the lists of its streams."""
    registered: list[CutPublisher] = []

    async def register() -> CutPublisher:
        registered.append(publisher_of(group, SentCuts()))
        return registered[-1]

    made = ReaderGroup(group._cluster, SCOPE, "new")
    for start, end in (({}, {0: 9}), ({0: -1}, {0: 9}), ({0: 5}, {0: 3})):
        with pytest.raises(InvalidArgument):
            await made.create(GroupConfiguration({(SCOPE, STREAM): start}, {(SCOPE, STREAM): end}), register)
    assert not registered
    await made.create(GroupConfiguration({(SCOPE, STREAM): HEAD}), register)
    assert made.publishes_itself
    assert len(registered) == 1
    await ReaderGroup(group._cluster, SCOPE, "new").create(made.configuration, register)
    assert len(registered) == 2, "what became of the first registration is not known"


async def test_a_group_that_exists_is_joined_whatever_became_of_its_start(
    group: ReaderGroup, reader: EventReader, stream: FakeStream, segments: InMemorySegmentStore
) -> None:
    """A program that is started again names the cut, or the stream, from which it once began."""
    await segments.append(S0, [framed(b"one")])
    assert await take(reader, 1) == [b"one"]
    await reader.refresh()

    async def truncated(scope: str, name: str, cut: SegmentOffsets) -> bool:
        raise InvalidArgument(f"{cut} names segments from before the oldest epoch on record")

    async def deleted(scope: str, name: str) -> SegmentOffsets:
        raise NotFound(f"there is no stream {scope}/{name}")

    stream.is_cut_valid, stream.head_cut = truncated, deleted  # type: ignore[method-assign, assignment]
    for configuration in (
        GroupConfiguration({(SCOPE, STREAM): {0: 0}}, {(SCOPE, STREAM): {0: 99}}),
        GroupConfiguration({(SCOPE, STREAM): HEAD}),
    ):
        again = await ReaderGroup(group._cluster, SCOPE, "g").create(configuration)
        assert again.configuration == group.configuration
        assert await again.readers_online() == ["r"]
        with pytest.raises((InvalidArgument, NotFound)):
            await ReaderGroup(group._cluster, SCOPE, "new").create(configuration)


async def test_events_that_come_in_pieces_are_put_together(reader: EventReader, segments: InMemorySegmentStore) -> None:
    """A store may answer with any number of bytes: cut within headers, within events, and between them."""
    events = [b"", b"a", b"bc" * 20, b"", b"d" * 300]
    whole = framed(*events)
    reading = asyncio.create_task(take(reader, len(events)))
    for start in range(0, len(whole), 7):
        await segments.append(S0, [whole[start : start + 7]])
        await eventually(lambda: bool(segments.waiting_reads(S0)) or reading.done())
    assert await reading == events


async def test_a_slice_that_is_given_back_twice_moves_no_later_one(
    reader: EventReader, segments: InMemorySegmentStore
) -> None:
    """As by a program that does it at the end of its work, and once more where it cleans up."""
    pieces: list[SegmentSlice] = []
    for event in (b"one", b"three", b"eleven"):
        await segments.append(S0, [framed(event)])
        pieces.append(await next_slice(reader))
        if len(pieces) == 2:
            reader.release_segment(pieces[0])
        found = [(item.offset, bytes(item)) for item in pieces[-1]]
        assert found == [(0, b"one"), (11, b"three"), (24, b"eleven")][len(pieces) - 1 : len(pieces)]
        reader.release_segment(pieces[-1])


async def test_a_slice_is_given_back_only_at_an_event(
    reader: EventReader, group: ReaderGroup, segments: InMemorySegmentStore
) -> None:
    """A position within an event would be recorded, and be damage to whoever reads on from there."""
    await segments.append(S0, [framed(b"one", b"three")])
    await segments.append(S0, [framed(b"half")[:9]])
    piece = await next_slice(reader)
    assert bytes(next(piece)) == b"one"
    for offset in (1, 8, 10, 12, 23, 25, 33, 34, -1):
        with pytest.raises(InvalidArgument):
            reader.release_segment_at(piece, offset)
    reader.release_segment_at(piece, 11)
    await reader.refresh()
    assert await group_cut(group) == {0: 11}
    assert await take(reader, 1) == [b"three"]


async def test_an_event_larger_than_a_read_comes_whole(
    reader: EventReader, segments: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_feed, "read_bytes", 64)
    events = [b"small", b"x" * 1_000, b"y", b"z" * 64, b"end"]
    await segments.append(S0, [framed(*events)])
    assert await take(reader, len(events)) == events


async def test_a_lost_connection_costs_and_repeats_nothing(
    reader: EventReader, segments: InMemorySegmentStore, server: WireServer
) -> None:
    reading = asyncio.create_task(take(reader, 4))
    for number in range(4):
        await eventually(lambda: bool(segments.waiting_reads(S0)))
        if number % 2:
            next(iter(reader._reads._pools[0]._connections.values())).close("the test cuts it")
        await segments.append(S0, [framed(b"event %d" % number)])
    assert await reading == [b"event %d" % number for number in range(4)]


async def test_a_fault_of_the_program_is_not_waited_out(group: ReaderGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    async def faulty(self: object, segment: str, offset: int, length: int, *, is_reached: bool) -> None:
        raise ZeroDivisionError("a fault of the program")

    monkeypatch.setattr(segment_feed.SegmentReads, "read", faulty)
    async with await group.create_reader("r") as reader:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await take(reader, 1)


async def test_a_segment_that_was_sealed_before_its_successors_are_known_is_waited_for(
    reader: EventReader, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.append(S0, [framed(b"old")])
    await segments.seal(S0)
    assert await take(reader, 1) == [b"old"]
    assert await reader.get_segment_slice(timeout_s=0.05) is None
    assert not reader.is_finished
    for name in (S1, S2):
        await segments.create_segment(name)
        await segments.append(name, [framed(b"new")])
    stream.open = [1 << 32 | 1, 1 << 32 | 2]
    stream.following = {0: {1 << 32 | 1: (0,), 1 << 32 | 2: (0,)}}
    assert await take(reader, 2) == [b"new", b"new"]


async def test_what_follows_a_segment_is_not_missed_where_its_stream_is_sealed_at_that_moment(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two questions of a reader the scale ended, the rest was written, and the stream was sealed."""
    await segments.append(S0, [framed(b"before")])
    await segments.seal(S0)

    async def current_segments(scope: str, name: str) -> list[SegmentRange]:
        if not stream.following:
            await segments.create_segment(S1)
            await segments.append(S1, [framed(b"behind")])
            await segments.seal(S1)
            stream.open, stream.following = [], {0: {1 << 32 | 1: (0,)}}
        return []

    monkeypatch.setattr(stream, "current_segments", current_segments)
    async with await group.create_reader("r") as reader:
        assert await all_events(reader) == [b"before", b"behind"]


async def test_a_segment_that_waits_for_its_successors_does_not_slow_the_others_down(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scale may stand for a minute, while a store is away."""
    monkeypatch.setattr(segment_feed, "read_bytes", 16)
    other = segment_name(SCOPE, STREAM, 7)
    await segments.create_segment(other)
    await segments.seal(S0)
    count = 200
    await segments.append(other, [framed(b"event %02d" % (number % 100)) for number in range(count)])
    cluster, asked = group._cluster, 0
    both = {(SCOPE, STREAM): {0: 0, 7: 0}}
    made = await ReaderGroup(cluster, SCOPE, "two").create(GroupConfiguration(both, {}, 60_000))
    found = stream.successors

    async def counted(scope: str, name: str, segment_id: int) -> list[Successor]:
        nonlocal asked
        asked += 1
        return await found(scope, name, segment_id)

    monkeypatch.setattr(stream, "successors", counted)
    monkeypatch.setattr(event_reader, "successors_delay_s", 60.0)
    async with await made.create_reader("r") as reader:
        assert len(await take(reader, count)) == count
        assert asked == 1


async def test_the_end_of_a_sealed_stream_ends_the_events(
    reader: EventReader, segments: InMemorySegmentStore, stream: FakeStream, group: ReaderGroup
) -> None:
    await segments.append(S0, [framed(b"last")])
    await segments.seal(S0)
    stream.open = []
    async with asyncio.timeout(20):
        assert [bytes(event) async for event in reader.events()] == [b"last"]
    assert reader.is_finished
    assert (await group.get_stream_cuts())[SCOPE, STREAM].offsets == {0: 12}


async def test_bytes_that_are_no_events_are_damage(reader: EventReader, segments: InMemorySegmentStore) -> None:
    await segments.append(S0, [framed(b"good"), b"\0\0\0\7 no header"])
    piece = await reader.get_segment_slice()
    assert piece is not None and bytes(next(piece)) == b"good"
    with pytest.raises(DataCorruption, match="offset 12"):
        next(piece)


async def test_a_sealed_segment_that_ends_within_an_event_is_damage(
    reader: EventReader, segments: InMemorySegmentStore
) -> None:
    await segments.append(S0, [framed(b"whole") + framed(b"cut off")[:-1]])
    await segments.seal(S0)
    assert await take(reader, 1) == [b"whole"]
    with pytest.raises(DataCorruption, match="ends within the event at offset 13"):
        await take(reader, 1)


async def test_a_place_behind_the_end_of_a_sealed_segment_is_told_and_not_waited_for(
    group: ReaderGroup, segments: InMemorySegmentStore
) -> None:
    """As after Tier 1 was lost. A store closes the connection of such a read, on which others may wait."""
    await segments.append(S0, [framed(b"event")])
    await segments.seal(S0)
    await group.reset({(SCOPE, STREAM): {0: 5_000}})
    async with await group.create_reader("late") as reader:
        with pytest.raises(DataCorruption, match=r"at offset 5000 of a segment of 13 bytes: .* reset the"):
            await take(reader, 1)
    await group.reset({(SCOPE, STREAM): {0: 0}})
    async with await group.create_reader("reset") as reader:
        assert await take(reader, 1) == [b"event"]


async def test_a_place_behind_the_end_of_an_open_segment_is_told_and_not_waited_for(
    group: ReaderGroup, segments: InMemorySegmentStore
) -> None:
    """As in a stream that was made again under the name: bytes up to there would be another stream's, unread."""
    await segments.append(S0, [framed(b"event")])
    await group.reset({(SCOPE, STREAM): {0: 5_000}})
    async with await group.create_reader("late") as reader:
        with pytest.raises(DataCorruption, match=r"at offset 5000 of a segment of 13 bytes: .* reset the"):
            await take(reader, 1)
    await group.reset({(SCOPE, STREAM): {0: 13}})
    async with await group.create_reader("at-the-end") as reader:
        waiting = asyncio.create_task(take(reader, 1))
        await asyncio.sleep(segment_feed.end_looked_for_after_s * 1.5)  # It has looked for the end by then.
        await segments.append(S0, [framed(b"next")])
        assert await waiting == [b"next"]


async def test_a_reader_goes_on_behind_what_was_truncated(group: ReaderGroup, segments: InMemorySegmentStore) -> None:
    await segments.append(S0, [framed(b"one", b"two", b"three")])
    await segments.truncate(S0, 11)
    async with await group.create_reader("late") as reader:
        with pytest.raises(EventsTruncated) as caught:
            await take(reader, 1)
        assert (caught.value.offset, caught.value.next_offset) == (0, 11)
        assert await take(reader, 2) == [b"two", b"three"]


async def test_a_segment_that_is_gone_is_passed_over_if_its_stream_goes_on(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.delete(S0)
    async with await group.create_reader("late") as reader:
        with pytest.raises(SegmentNotFound):
            await take(reader, 1)
        await segments.create_segment(S1)
        await segments.append(S1, [framed(b"later")])
        stream.open, stream.following = [1 << 32 | 1], {0: {1 << 32 | 1: (0,)}}
        with pytest.raises(EventsTruncated) as caught:
            await take(reader, 1)
        assert caught.value.next_offset is None
        assert await take(reader, 1) == [b"later"]


async def truncated_till(
    stream: FakeStream, segments: InMemorySegmentStore, head: SegmentOffsets, *forgotten: int
) -> None:
    """Make segments with an event each the head and the tail, and forget others, whatever followed them."""
    stream.head, stream.open, stream.forgotten = head, list(head), set(forgotten)
    for number in forgotten:
        if segment_name(SCOPE, STREAM, number) in segments.segment_names:
            await segments.delete(segment_name(SCOPE, STREAM, number))
    for number in head:
        await segments.create_segment(segment_name(SCOPE, STREAM, number))
        await segments.append(segment_name(SCOPE, STREAM, number), [framed(b"of %d" % (number & 0xFF))])


async def test_a_group_whose_place_is_forgotten_goes_on_at_the_head(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """The group was away while its stream was scaled and truncated often."""
    await segments.append(S0, [framed(b"lost")])
    await truncated_till(stream, segments, {40 << 32 | 8: 0, 41 << 32 | 9: 0}, 0)
    async with await group.create_reader("late") as reader:
        with pytest.raises(EventsTruncated) as caught:
            await take(reader, 1)
        assert (caught.value.segment, caught.value.offset, caught.value.next_offset) == (S0, 0, None)
        assert sorted(await take(reader, 2)) == [b"of 8", b"of 9"]
    assert sorted(await group_cut(group)) == [40 << 32 | 8, 41 << 32 | 9]


async def test_a_segment_that_was_read_to_its_end_may_be_forgotten(
    group: ReaderGroup, reader: EventReader, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.append(S0, [framed(b"read")])
    await segments.seal(S0)
    assert await take(reader, 1) == [b"read"]
    await truncated_till(stream, segments, {40 << 32 | 8: 0}, 0)
    with pytest.raises(EventsTruncated) as caught:
        await take(reader, 1)
    assert (caught.value.segment, caught.value.offset) == (S0, 12)
    assert await take(reader, 1) == [b"of 8"]


async def group_cut(group: ReaderGroup) -> SegmentOffsets:
    return (await group.get_stream_cuts())[SCOPE, STREAM].offsets


async def test_what_the_group_has_of_the_head_does_not_come_again(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """Of the head one segment is held, one was read and its successor is held, and one came in place of a lost one.
    What waited for lost segments comes from the head, once."""
    held, before, after, waiting, gone = 40 << 32 | 1, 20 << 32 | 2, 41 << 32 | 3, 30 << 32 | 4, 0
    also_gone = 7
    await truncated_till(stream, segments, {held: 0, before: 0, waiting: 0}, gone, also_gone)
    await segments.create_segment(segment_name(SCOPE, STREAM, after))
    await segments.append(segment_name(SCOPE, STREAM, after), [framed(b"of 3")])
    stream.following = {before: {after: (before,)}}
    await group._table.update(
        lambda state: replace(
            state,
            unassigned={segment_name(SCOPE, STREAM, number): 0 for number in (held, after, gone, also_gone)},
            future={segment_name(SCOPE, STREAM, waiting): frozenset({gone, also_gone})},
        ) if len(state.unassigned) == 1 else state
    )  # fmt: skip
    async with await group.create_reader("r") as reader:
        told: list[str] = []
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < 3:
                try:
                    found += await take(reader, 1)
                except EventsTruncated as lost:
                    told.append(lost.segment)
        assert sorted(found) == [b"of 1", b"of 3", b"of 4"]
        assert told == [segment_name(SCOPE, STREAM, number) for number in (gone, also_gone)]
    assert sorted(await group_cut(group)) == sorted([held, after, waiting])


async def test_a_cut_has_a_read_segment_that_was_truncated_while_its_successor_waits(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """Two segments are merged; one was read and is gone, and nobody has come yet to read the other."""
    merged, other = 1 << 32 | 1, 7
    await segments.append(S0, [framed(b"read")])
    await segments.create_segment(segment_name(SCOPE, STREAM, other))
    stream.following = {number: {merged: (0, other)} for number in (0, other)}
    await group._table.update(
        lambda state: replace(
            state, unassigned={segment_name(SCOPE, STREAM, other): 5}, future={S1: frozenset({other})}
        )
    )
    await group.initiate_checkpoint("c")
    assert await group_cut(group) == {0: 12, other: 5}
    await segments.delete(S0)
    assert await group_cut(group) == {0: 0, other: 5}
    assert (await group.wait_for_checkpoint("c"))[SCOPE, STREAM].offsets == {0: 0, other: 5}


async def test_a_group_without_readers_has_a_cut_when_what_it_waits_for_is_forgotten(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """What is on record of the group stands in the cut; a reader, once there is one, takes the group to the head."""
    merged, other = 1 << 32 | 1, 7
    await group._table.update(
        lambda state: replace(
            state, unassigned={segment_name(SCOPE, STREAM, other): 5}, future={S1: frozenset({other})}
        )
    )
    await truncated_till(stream, segments, {40 << 32 | 8: 0}, 0, other)
    assert await group_cut(group) == {other: 5, merged: -1}
    stream.deleted.add(STREAM)
    assert await group_cut(group) == {other: 5, merged: -1}


async def test_a_group_goes_on_at_a_checkpoint_between_segments_that_were_cut_anew(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a scale of 2 segments to 3. One of the new ones is read already, and what it follows overlaps it; another
    one waits. No cut without a segment that was not reached stands there."""
    second, read, waiting = 7, 1 << 32 | 8, 1 << 32 | 9
    keys = {0: (0.0, 0.5), second: (0.5, 1.0), read: (0.0, 0.3), waiting: (0.3, 1.0)}
    records = {item: SegmentRecord(item & 0xFF, item >> 32, 0, *keys[item]) for item in keys}

    async def is_cut_valid(scope: str, name: str, cut: SegmentOffsets) -> bool:
        return is_valid(PlacedCut(dict(cut), {item: records[item] for item in cut}, {item: item >> 32 for item in cut}))

    monkeypatch.setattr(stream, "is_cut_valid", is_cut_valid)
    stream.head = {0: 0, second: 0}
    stream.open = [read, waiting]
    stream.following = {0: {read: (0,), waiting: (0, second)}, second: {waiting: (0, second)}}
    for item in (second, read, waiting):
        await segments.create_segment(segment_name(SCOPE, STREAM, item))
        await segments.append(segment_name(SCOPE, STREAM, item), [framed(b"of %d" % (item & 0xFF))])
    await segments.append(S0, [framed(b"of 0")])
    await segments.seal(S0)
    made = await ReaderGroup(group._cluster, SCOPE, "anew").create(GroupConfiguration({(SCOPE, STREAM): HEAD}, {}, 20))
    async with await made.create_reader("r") as reader:
        assert sorted(await take(reader, 3)) == [b"of 0", b"of 7", b"of 8"]
        await made.initiate_checkpoint("c")
        while not (await made.list_checkpoints())["c"]:
            assert await reader.get_segment_slice(timeout_s=0.02) is None
    cut = (await made.wait_for_checkpoint("c"))[SCOPE, STREAM].offsets
    assert await is_cut_valid(SCOPE, STREAM, cut)
    assert cut == await group_cut(made) == {second: 12, read: 12, waiting: -1}
    for item in (second, read):
        await segments.append(segment_name(SCOPE, STREAM, item), [framed(b"late %d" % (item & 0xFF))])
    await made.reset_to_checkpoint("c")
    async with await made.create_reader("r") as reader:
        assert sorted(await take(reader, 2)) == [b"late 7", b"late 8"]
        await segments.seal(segment_name(SCOPE, STREAM, second))
        assert await take(reader, 1) == [b"of 9"]


async def test_a_checkpoint_is_waited_for_before_a_group_goes_on_at_the_head(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    first = await group.create_reader("a")
    second = await group.create_reader("b")
    await group.initiate_checkpoint("c")
    await truncated_till(stream, segments, {40 << 32 | 8: 0}, 0)
    with pytest.raises(EventsTruncated):
        await take(first, 1)
    await second.refresh()
    cuts = await group.wait_for_checkpoint("c")
    assert cuts[SCOPE, STREAM].offsets == {0: 0}
    assert await take(first, 1) == [b"of 8"]
    await first.reader_offline()
    await second.reader_offline()


async def test_a_deleted_stream_keeps_no_other_from_being_read(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    other = segment_name(SCOPE, "other", 0)
    await segments.create_segment(other)
    both = GroupConfiguration({(SCOPE, STREAM): HEAD, (SCOPE, "other"): HEAD}, {}, 20)
    made = await ReaderGroup(group._cluster, SCOPE, "both").create(both)
    async with await made.create_reader("r") as reader:
        await segments.delete(S0)
        stream.deleted = {STREAM}
        with pytest.raises(EventsTruncated) as caught:
            await take(reader, 1)
        assert (caught.value.segment, caught.value.next_offset) == (S0, None)
        await segments.append(other, [framed(b"goes on")])
        assert await take(reader, 1) == [b"goes on"]
        assert await reader.get_segment_slice(timeout_s=0.05) is None


async def test_a_stream_that_was_read_to_its_end_and_deleted_has_ended(
    group: ReaderGroup, reader: EventReader, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.append(S0, [framed(b"last")])
    await segments.seal(S0)
    assert await take(reader, 1) == [b"last"]
    await segments.delete(S0)
    stream.deleted = {STREAM}
    assert await all_events(reader) == []


async def test_all_that_went_with_a_deleted_stream_is_told_before_the_events_end(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """A program that reads until its group has read everything would take the end for a whole one."""
    names = [segment_name(SCOPE, STREAM, number) for number in range(3)]
    for name in names[1:]:
        await segments.create_segment(name)
    stream.open, stream.head = [0, 1, 2], {0: 0, 1: 0, 2: 0}
    for is_read in (True, False):
        # Long between two looks at the group, as by default.
        configuration = GroupConfiguration({(SCOPE, STREAM): HEAD}, {}, 60_000)
        made = await ReaderGroup(group._cluster, SCOPE, f"g{is_read}").create(configuration)
        async with await made.create_reader("r") as reader:
            if is_read:
                await segments.append(S0, [framed(b"read")])
                assert await take(reader, 1) == [b"read"]
                await segments.seal(S0)
                stream.deleted = {STREAM}
                for name in names[1:]:
                    await segments.delete(name)
            else:
                await segments.delete(S0)
                stream.deleted = {STREAM}
            lost = []
            while not reader.is_finished:
                try:
                    assert await all_events(reader) == []
                except EventsTruncated as error:
                    lost.append((error.segment, error.offset))
            assert lost == [(name, 0) for name in names[is_read:]], is_read
        stream.deleted = set()


async def test_a_stream_that_was_made_again_is_read_from_its_head(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.delete(S0)
    await truncated_till(stream, segments, {5: 0})
    async with await group.create_reader("r") as reader:
        with pytest.raises(EventsTruncated):
            await take(reader, 1)
        assert await take(reader, 1) == [b"of 5"]


async def test_a_connection_is_tried_while_a_read_waits(endpoint: Endpoint, segments: InMemorySegmentStore) -> None:
    await segments.create_segment(S0)
    reads = segment_feed.SegmentReads(ScriptedResolver(endpoint), probe_s=0.01)
    reading = asyncio.create_task(reads.read(S0, 0, 100))
    await eventually(lambda: bool(segments.waiting_reads(S0)))
    done, _ = await asyncio.wait({reading}, timeout=0.1)
    assert not done, "the probes were answered, so the read goes on"
    await segments.append(S0, [b"bytes"])
    assert bytes((await reading).data) == b"bytes"
    reads.close()


async def test_a_connection_is_tried_once_for_all_reads_that_wait_on_it(
    endpoint: Endpoint, segments: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that began together would all try it together, every few seconds of a quiet stream."""
    probes = 0
    together: list[int] = []

    async def counted(*arguments: Any) -> Any:
        nonlocal probes
        probes += 1
        together.append(probes)
        try:
            return await answer_of_owner(*arguments)
        finally:
            probes -= 1

    monkeypatch.setattr(segment_feed, "answer_of_owner", counted)
    await segments.create_segment(S0)
    reads = segment_feed.SegmentReads(ScriptedResolver(endpoint), probe_s=0.01)
    reading = [asyncio.create_task(reads.read(S0, 0, 100)) for _ in range(100)]
    await eventually(lambda: len(together) >= 3)
    assert set(together) == {1}
    await segments.append(S0, [b"bytes"])
    assert {bytes(answer.data) for answer in await asyncio.gather(*reading)} == {b"bytes"}
    reads.close()


async def test_more_reads_wait_at_a_store_than_one_connection_has_room_for(
    endpoint: Endpoint, segments: InMemorySegmentStore
) -> None:
    """As of one reader of a stream with the most segments that it may have; the probes need room beside."""
    names = [segment_name(SCOPE, STREAM, number) for number in range(segments_per_stream_max)]
    for name in names:
        await segments.create_segment(name)
    reads = segment_feed.SegmentReads(ScriptedResolver(endpoint), probe_s=0.5)
    reading = {name: asyncio.create_task(reads.read(name, 0, 100)) for name in names}
    await eventually(lambda: all(segments.waiting_reads(name) or reading[name].done() for name in names))
    done, _ = await asyncio.wait(reading.values(), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    assert [task.exception() for task in done] == [], "all wait, and their connections were tried meanwhile"
    for name in (names[0], names[-1]):
        await segments.append(name, [b"bytes"])
        assert bytes((await reading[name]).data) == b"bytes"
    for task in reading.values():
        task.cancel()
    await asyncio.wait(reading.values())
    reads.close()


async def test_a_reader_that_could_not_leave_leaves_when_it_is_asked_again(
    group: ReaderGroup, segments: InMemorySegmentStore, tables: TablesAway
) -> None:
    await segments.append(S0, [framed(b"one", b"two")])
    reader = await group.create_reader("r")
    assert await take(reader, 1) == [b"one"]
    tables.puts_to_refuse = 1
    with pytest.raises(Unavailable):
        await reader.reader_offline()
    with pytest.raises(ReaderOffline):
        await reader.get_segment_slice()
    assert await group.readers_online() == ["r"]
    await reader.reader_offline()
    await reader.reader_offline()
    assert await group.readers_online() == []
    async with await group.create_reader("next") as following:
        assert await take(following, 1) == [b"two"]


async def test_a_reader_that_could_not_leave_takes_no_later_one_of_its_name_out(
    group: ReaderGroup, tables: TablesAway
) -> None:
    reader = await group.create_reader("r")
    tables.puts_to_refuse = 1
    with pytest.raises(Unavailable):
        await reader.reader_offline()
    await group.reader_offline("r")
    async with await group.create_reader("r"):
        await reader.reader_offline()
        assert await group.readers_online() == ["r"]


async def test_a_reader_that_could_not_be_made_is_not_in_the_group(group: ReaderGroup, tables: TablesAway) -> None:
    tables.good_puts, tables.puts_to_refuse = 1, 1
    with pytest.raises(Unavailable):
        await group.create_reader("r")
    assert await group.readers_online() == []
    async with await group.create_reader("r"):
        with pytest.raises(AlreadyExists):
            await group.create_reader("r")
        assert await group.readers_online() == ["r"]


async def test_a_reader_that_could_neither_be_made_nor_leave_is_made_by_the_next_attempt(
    group: ReaderGroup, segments: InMemorySegmentStore, tables: TablesAway, caplog: pytest.LogCaptureFixture
) -> None:
    await segments.append(S0, [framed(b"one")])
    for good_puts, puts_to_refuse in ((1, 2), (0, 2)):
        tables.good_puts, tables.puts_to_refuse = good_puts, puts_to_refuse
        with pytest.raises(Unavailable):
            await group.create_reader("r")
        assert await group.readers_online() == ["r"]
    assert [line.split(":")[0] for line in caplog.messages] == [
        "reader r could not be made and may be in group s/g still"
    ] * 2
    async with await group.create_reader("r") as reader:
        assert await take(reader, 1) == [b"one"]


async def test_a_reader_whose_making_is_cancelled_leaves(group: ReaderGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshing = asyncio.Event()

    async def refresh(self: EventReader) -> None:
        refreshing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(EventReader, "refresh", refresh)
    making = asyncio.create_task(group.create_reader("r"))
    await refreshing.wait()
    assert await group.readers_online() == ["r"]
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert await group.readers_online() == []


async def test_a_reader_of_a_group_that_is_gone_is_not_told_of(
    group: ReaderGroup, caplog: pytest.LogCaptureFixture
) -> None:
    await group.delete()
    with pytest.raises(NotFound):
        await group.create_reader("r")
    assert not caplog.messages


async def test_a_checkpoint_whose_answer_was_lost_is_begun(group: ReaderGroup, tables: TablesAway) -> None:
    tables.when_lost = ReaderGroup(group._cluster, SCOPE, "g").list_checkpoints
    await group.initiate_checkpoint("c")
    assert await group.list_checkpoints() == {"c": True}
    with pytest.raises(AlreadyExists):
        await group.initiate_checkpoint("c")


async def test_a_reader_that_comes_while_a_dead_one_of_its_name_is_taken_out_stays(
    group: ReaderGroup, segments: InMemorySegmentStore, tables: TablesAway
) -> None:
    await segments.append(S0, [framed(b"one", b"two")])
    dead = await group.create_reader("r")
    later: list[EventReader] = []

    async def come() -> None:
        later.append(await ReaderGroup(group._cluster, SCOPE, "g").create_reader("r"))

    tables.when_lost = come
    await group.reader_offline("r", {S0: 11})
    assert await group.readers_online() == ["r"]
    with pytest.raises(ReaderOffline):
        await dead.refresh()
    async with later.pop() as reader:
        assert await take(reader, 1) == [b"two"]


@pytest.mark.parametrize("refresh_time_ms", [1, 60_000])
async def test_what_another_reader_read_meanwhile_does_not_come_again_after_a_failed_refresh(
    group: ReaderGroup, segments: InMemorySegmentStore, tables: TablesAway, refresh_time_ms: int
) -> None:
    """The store has what the refresh gave back, and the reader does not know it."""
    await segments.create_segment(S1)
    await segments.append(S1, [framed(b"one", b"two")])
    starts = GroupConfiguration({(SCOPE, STREAM): {0: 0, 1 << 32 | 1: 0}}, {}, refresh_time_ms)
    shared = await ReaderGroup(group._cluster, SCOPE, "shared").create(starts)
    first, second = await shared.create_reader("a"), await shared.create_reader("b")

    async def read_and_leave() -> None:
        await second.refresh()
        assert await take(second, 2) == [b"one", b"two"]
        await second.reader_offline()
        tables.looks_to_refuse = 1

    tables.when_lost = read_and_leave
    with pytest.raises(UnknownOutcome):
        await first.refresh()
    await segments.append(S1, [framed(b"three")])
    assert await take(first, 1) == [b"three"]
    await first.reader_offline()


# ---- a group with an end

ENDING = GroupConfiguration({(SCOPE, STREAM): HEAD}, {(SCOPE, STREAM): {0: 11}}, 20)


async def all_events(reader: EventReader) -> list[bytes]:
    async with asyncio.timeout(20):
        return [bytes(event) async for event in reader.events()]


async def test_a_group_whose_end_was_truncated_has_ended(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    """Whether the segment goes on behind the end or was sealed there, nothing behind the end is read."""
    bounded = await ReaderGroup(group._cluster, SCOPE, "bounded").create(ENDING)
    scaled = await ReaderGroup(group._cluster, SCOPE, "scaled").create(ENDING)
    await segments.append(S0, [framed(b"one", b"two", b"three")])
    await segments.truncate(S0, 22)
    async with await bounded.create_reader("r") as reader:
        with pytest.raises(EventsTruncated) as caught:
            await all_events(reader)
        assert (caught.value.offset, caught.value.next_offset) == (0, 22)
        assert await all_events(reader) == []
    await bounded.reset({(SCOPE, STREAM): await group_cut(bounded)})
    await segments.seal(S0)
    await segments.create_segment(S1)
    await segments.append(S1, [framed(b"behind the end")])
    stream.open, stream.following = [1 << 32 | 1], {0: {1 << 32 | 1: (0,)}}
    async with await scaled.create_reader("r") as reader:
        with pytest.raises(EventsTruncated):
            await all_events(reader)
        assert await all_events(reader) == []


async def test_a_group_whose_last_segment_is_gone_has_ended(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    bounded = await ReaderGroup(group._cluster, SCOPE, "bounded").create(ENDING)
    await segments.delete(S0)
    await segments.create_segment(S1)
    await segments.append(S1, [framed(b"behind the end")])
    stream.open, stream.following = [1 << 32 | 1], {0: {1 << 32 | 1: (0,)}}
    async with await bounded.create_reader("r") as reader:
        with pytest.raises(EventsTruncated) as caught:
            await all_events(reader)
        assert (caught.value.offset, caught.value.next_offset) == (0, None)
        assert await all_events(reader) == []


async def test_a_group_whose_place_is_forgotten_and_whose_end_was_truncated_stands_at_its_end(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    head = 40 << 32 | 8
    bounded = await ReaderGroup(group._cluster, SCOPE, "bounded").create(
        replace(ENDING, end={(SCOPE, STREAM): {head: 3}})
    )
    await truncated_till(stream, segments, {head: 12}, 0)
    async with await bounded.create_reader("r") as reader:
        with pytest.raises(EventsTruncated):
            await all_events(reader)
        assert await all_events(reader) == []
    assert await group_cut(bounded) == {head: 3}


@pytest.mark.parametrize("end", [{0: 11}, {40 << 32 | 8: 12}])
async def test_a_group_whose_place_is_forgotten_ends_where_it_was_to(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream, end: SegmentOffsets
) -> None:
    head = 40 << 32 | 8
    ending = replace(ENDING, end={(SCOPE, STREAM): end})
    bounded = await ReaderGroup(group._cluster, SCOPE, "bounded").create(ending)
    await truncated_till(stream, segments, {head: 0}, 0)
    await segments.append(segment_name(SCOPE, STREAM, head), [framed(b"behind the end")])
    async with await bounded.create_reader("r") as reader:
        with pytest.raises(EventsTruncated):
            await all_events(reader)
        assert await all_events(reader) == ([b"of 8"] if head in end else [])


@pytest.mark.parametrize("start", [{0: 12}, {1 << 32 | 1: 0}])
async def test_a_group_does_not_begin_behind_its_end(group: ReaderGroup, start: SegmentOffsets) -> None:
    bounded = ReaderGroup(group._cluster, SCOPE, "bounded")
    behind = replace(ENDING, start={(SCOPE, STREAM): start})
    with pytest.raises(InvalidArgument, match="lies before"):
        await bounded.create(behind)
    await bounded.create(ENDING)
    assert (await bounded.create(behind)).configuration == ENDING, "the group that exists is joined"
    with pytest.raises(InvalidArgument, match="lies before"):
        await bounded.reset({(SCOPE, STREAM): start})


# ---- retention


class SentCuts:
    """The cuts that a group published, by name of the stream; ``refused`` streams are unknown. A ``GroupRegistry``."""

    def __init__(self, refused: str = "") -> None:
        self.cuts: list[tuple[str, SegmentOffsets]] = []
        self.refused = refused
        self.registration = GroupRegistration(SCOPE, "g", "id", 0, ReaderGroupRetention.AUTOMATIC)

    async def find(self, scope: str, group: str) -> GroupRegistration | None:
        return self.registration

    async def renew(self, registration: GroupRegistration) -> GroupRegistration:
        self.registration = replace(self.registration, generation=self.registration.generation + 1)
        return self.registration

    async def update_cut(self, registration: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        if stream == self.refused:
            raise NotFound(f"there is no stream {scope}/{stream}")
        if registration != self.registration:
            raise ControllerRefused("GENERATION_MISMATCH")
        self.cuts.append((stream, cut))


def publisher_of(group: ReaderGroup, sent: SentCuts) -> CutPublisher:
    return CutPublisher(group._cluster, sent.registration, sent)


async def test_the_first_reader_that_can_publishes(group: ReaderGroup) -> None:
    """A reader of the Rust client publishes nothing, whatever its name."""
    await group._table.update(
        lambda state: (
            replace(state, assigned={"a": {}}, incarnations={"a": OTHER_CLIENT}) if "a" not in state.assigned else state
        )
    )
    sent = SentCuts()
    registered = ReaderGroup(group._cluster, SCOPE, "g", publisher_of(group, sent))
    async with await registered.create_reader("b"), await registered.create_reader("c"):
        await eventually(lambda: sent.cuts == [(STREAM, {0: 0})])


async def test_a_stream_that_refuses_its_cut_keeps_no_other_from_being_published(group: ReaderGroup) -> None:
    sent = SentCuts(refused="gone")
    publisher = publisher_of(group, sent)
    with pytest.raises(NotFound):
        await publisher.publish({(SCOPE, "gone"): {0: 1}, (SCOPE, STREAM): {0: 2}})
    assert sent.cuts == [(STREAM, {0: 2})]


async def test_a_stream_that_is_deleted_needs_no_cut_once_the_group_goes_on_without_it(
    group: ReaderGroup, segments: InMemorySegmentStore, stream: FakeStream
) -> None:
    await segments.create_segment(segment_name(SCOPE, "other", 0))
    both = GroupConfiguration({(SCOPE, STREAM): HEAD, (SCOPE, "other"): HEAD}, {}, 20)
    sent = SentCuts(refused=STREAM)
    made = await ReaderGroup(group._cluster, SCOPE, "both", publisher_of(group, sent)).create(both)
    async with await ReaderGroup(group._cluster, SCOPE, "both").create_reader("r") as reader:
        await segments.delete(S0)
        stream.deleted = {STREAM}
        with pytest.raises(NotFound):
            await made.publish_cuts()
        with pytest.raises(EventsTruncated):
            await take(reader, 1)
    await made.publish_cuts()
    assert sent.cuts == [("other", {0: 0})]
    with pytest.raises(NotFound):
        await made.publish_cuts({(SCOPE, STREAM): {0: 5}})


async def test_a_reset_goes_back_in_retention_before_anything_is_read_again(group: ReaderGroup) -> None:
    """By the cut that was published before it, retention would drop what the group is to read again."""
    sent = SentCuts()
    registered = await ReaderGroup(group._cluster, SCOPE, "g", publisher_of(group, sent)).open()
    async with await registered.create_reader("r"):
        await registered.publish_cuts({(SCOPE, STREAM): {0: 11}})
        sent.refused = STREAM
        with pytest.raises(NotFound):
            await registered.reset({(SCOPE, STREAM): {0: 0}})
        assert await registered.readers_online() == ["r"], "retention was not told, so nothing was done"
        sent.refused = ""
        await registered.reset({(SCOPE, STREAM): {0: 0}})
    assert sent.cuts[-2:] == [(STREAM, {0: 11}), (STREAM, {0: 0})]
    assert await registered.readers_online() == []


async def test_other_clients_publish_again_after_a_reset(group: ReaderGroup, caplog: pytest.LogCaptureFixture) -> None:
    """Not what they knew when the generation that they had was refused: that may be of before the reset."""
    sent = SentCuts()
    publisher = publisher_of(group, sent)
    other = ReaderGroup(group._cluster, SCOPE, "g", publisher)
    await other.publish_cuts()
    resetting = await ReaderGroup(group._cluster, SCOPE, "g", publisher_of(group, sent)).open()
    await resetting.reset({(SCOPE, STREAM): {0: 0}})
    sent.cuts.clear()
    before = replace(group._table.state, unassigned={S0: 7})
    await publisher.publish_recorded(before)
    assert sent.cuts == []
    await publisher.publish_recorded(before)
    assert sent.cuts == [(STREAM, {0: 7})] and not caplog.messages
    await sent.renew(sent.registration)
    with pytest.raises(ControllerRefused, match="was reset since it was looked at"):
        await other.publish_cuts({(SCOPE, STREAM): {0: 700}})
    await other.publish_cuts()
    assert sent.cuts[-1] == (STREAM, {0: 0})


async def test_a_publication_under_way_ends_with_its_generation(group: ReaderGroup) -> None:
    is_sending, is_open = asyncio.Event(), asyncio.Event()

    class Slow(SentCuts):
        async def update_cut(
            self, registration: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets
        ) -> None:
            if stream == "slow" and not is_open.is_set():
                is_sending.set()
                await is_open.wait()
            await super().update_cut(registration, scope, stream, cut)

    sent = Slow()
    publisher = publisher_of(group, sent)
    publishing = asyncio.create_task(publisher.publish({(SCOPE, "slow"): {0: 7}, (SCOPE, STREAM): {0: 7}}))
    await is_sending.wait()
    async with publisher.going_back(group._table.state):
        pass
    assert not publisher.is_due(replace(group._table.state, incarnations={"r": 1}, assigned={"r": {}}), "r")
    is_open.set()
    with pytest.raises(ControllerRefused):
        await publishing
    assert sent.cuts == [(STREAM, {0: 0})]


async def test_what_was_recorded_before_a_reset_is_published_neither_during_it_nor_behind_it(
    group: ReaderGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention would drop what the group is to read again."""
    monkeypatch.setattr(cut_publisher, "publish_interval_s", 0.0)
    sent = SentCuts()
    publisher = publisher_of(group, sent)
    registered = ReaderGroup(group._cluster, SCOPE, "g", publisher)
    before = replace(group._table.state, assigned={"r": {S0: 7}}, incarnations={"r": 1})
    assert publisher.is_due(before, "r")
    late = publisher.publish_recorded(before)
    async with publisher.going_back(group._table.state):
        assert not publisher.is_due(before, "r")
        with pytest.raises(ControllerRefused, match="was reset since it was looked at"):
            await registered.publish_cuts({(SCOPE, STREAM): {0: 7}})
    await late
    assert sent.cuts == [(STREAM, {0: 0})]
    await registered.publish_cuts({(SCOPE, STREAM): {0: 5}})
    assert sent.cuts[1:] == [(STREAM, {0: 5})]


async def test_a_controller_that_hangs_stops_no_reading(group: ReaderGroup, segments: InMemorySegmentStore) -> None:
    is_sending, is_given_up = asyncio.Event(), asyncio.Event()

    class Hanging(SentCuts):
        async def update_cut(self, *_: object) -> None:
            is_sending.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_given_up.set()

    registered = ReaderGroup(group._cluster, SCOPE, "g", publisher_of(group, Hanging()))
    await segments.append(S0, [framed(b"one")])
    async with asyncio.timeout(20), await registered.create_reader("r") as reader:
        await is_sending.wait()
        await reader.refresh()
        assert await take(reader, 1) == [b"one"]
    async with asyncio.timeout(20):
        await is_given_up.wait()
