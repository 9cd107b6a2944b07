"""Says how every ``EventSource`` behaves: slices, what comes again, and the taking over from a dead instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from controller_service.event_processors.event_source import EventSource
from pravega_common.errors import InvalidArgument
from pravega_streams.errors import ReaderOffline
from pravega_streams.event.event_writer import event_bytes_max
from pravega_streams.readers.slices import SegmentSlice
from tests.support.eventually import eventually

MakeSource = Callable[[str], EventSource]
"""Makes the source of one instance by its reader's name; all read one stream."""
BytesGone = Callable[[], Awaitable[int]]
"""The bytes that were truncated from the stream."""


async def next_slice(source: EventSource) -> SegmentSlice:
    found: list[SegmentSlice] = []

    async def is_there() -> bool:
        piece = await source.next_slice(0.1)
        if piece is not None:
            found.append(piece)
        return piece is not None

    await eventually(is_there, "a slice")
    return found[0]


async def read(source: EventSource, count: int) -> list[bytes]:
    """Take and release until there were so many events."""
    events: list[bytes] = []
    while len(events) < count:
        piece = await next_slice(source)
        events += [bytes(event) for event in piece]
        source.release(piece, piece.position)
    return events


class EventSourceContract:
    """A subclass gives two fixtures: ``make`` and ``bytes_gone``."""

    async def test_events_of_a_key_come_in_the_order_of_writing(self, make: MakeSource) -> None:
        source = make("a")
        await source.join()
        written = [(f"s/{number % 5}", f"{number % 5} {number}".encode()) for number in range(40)]
        for key, event in written:
            await source.write(key, event)
        events = await read(source, len(written))
        assert sorted(events) == sorted(event for _, event in written)
        for number in range(5):
            mine = [event for event in events if event.startswith(b"%d " % number)]
            assert mine == [event for _, event in written if event.startswith(b"%d " % number)]

    async def test_nothing_more_of_a_segment_comes_while_a_slice_is_out(self, make: MakeSource) -> None:
        source = make("a")
        await source.join()
        await source.write("s/t", b"first")
        piece = await next_slice(source)
        assert [bytes(event) for event in piece] == [b"first"]
        await source.write("s/t", b"second")
        assert await source.next_slice(0.1) is None
        source.release(piece, piece.position)
        assert await read(source, 1) == [b"second"]

    async def test_what_was_not_handled_of_a_slice_comes_again(self, make: MakeSource) -> None:
        source = make("a")
        await source.join()
        for number in range(4):
            await source.write("s/t", b"%d" % number)
        events: list[bytes] = []
        while len(events) < 4:
            piece = await next_slice(source)
            event = next(piece)
            list(piece)
            events.append(bytes(event))
            source.release(piece, event.next_offset)
        assert events == [b"0", b"1", b"2", b"3"]

    async def test_what_was_not_released_comes_again_after_joining(self, make: MakeSource) -> None:
        source = make("a")
        await source.join()
        await source.write("s/t", b"event")
        list(await next_slice(source))
        await source.join()
        assert await read(source, 1) == [b"event"]

    async def test_what_was_released_does_not_come_again_after_leaving(self, make: MakeSource) -> None:
        source, heir = make("a"), make("b")
        await source.join()
        await source.write("s/t", b"first")
        await source.write("s/t", b"second")
        piece = await next_slice(source)
        first = next(piece)
        source.release(piece, first.next_offset)
        await source.leave()
        await source.leave()
        await heir.join()
        assert await read(heir, 1) == [b"second"]

    async def test_the_events_of_a_dead_reader_come_to_another_one(self, make: MakeSource) -> None:
        dead, heir = make("a"), make("b")
        await dead.join()
        await dead.write("s/t", b"event")
        piece = await next_slice(dead)
        await heir.join()
        assert await heir.next_slice(0.1) is None
        assert heir.other_readers() == ["a"]
        await heir.take_offline("a")
        await heir.take_offline("a")
        assert await read(heir, 1) == [b"event"]
        with pytest.raises(ReaderOffline):
            await eventually(lambda: _is_nothing(dead), "the end of the dead reader")
        dead.release(piece, piece.position)
        await heir.write("s/t", b"later")
        assert await read(heir, 1) == [b"later"]

    async def test_joining_takes_the_place_of_a_run_that_never_left(self, make: MakeSource) -> None:
        former, source = make("a"), make("a")
        await former.join()
        await former.write("s/t", b"event")
        list(await next_slice(former))
        await source.join()
        assert source.other_readers() == []
        assert await read(source, 1) == [b"event"]
        with pytest.raises(ReaderOffline):
            await eventually(lambda: _is_nothing(former), "the end of the former run")

    async def test_readers_share_the_segments(self, make: MakeSource) -> None:
        one, two = make("a"), make("b")
        await one.join()
        await two.join()
        for number in range(20):
            await one.write(f"s/{number}", b"%d" % number)
        events: list[list[bytes]] = [[], []]

        async def both_have_read() -> bool:
            for source, mine in ((one, events[0]), (two, events[1])):
                piece = await source.next_slice(0.05)
                if piece is not None:
                    mine += [bytes(event) for event in piece]
                    source.release(piece, piece.position)
                await one.write("s/more", b"more")
                await one.write("s/other", b"more")
            return len({*events[0], *events[1]}) == 21 and all(b"more" in mine for mine in events)

        await eventually(both_have_read, "a share for each reader")
        numbers = [event for mine in events for event in mine if event != b"more"]
        assert sorted(numbers) == sorted({b"%d" % number for number in range(20)})

    async def test_what_the_group_has_recorded_is_truncated(self, make: MakeSource, bytes_gone: BytesGone) -> None:
        source = make("a")
        await source.join()
        await source.write("s/t", b"x" * 92)
        await source.truncate()
        assert await bytes_gone() == 0
        assert await read(source, 1) == [b"x" * 92]

        async def is_gone() -> bool:
            await source.next_slice(0.05)
            await source.truncate()
            return await bytes_gone() == 100

        await eventually(is_gone, "the truncation")

    async def test_an_event_that_is_too_large_is_refused(self, make: MakeSource) -> None:
        source = make("a")
        await source.join()
        with pytest.raises(InvalidArgument, match="larger than"):
            await source.write("s/t", bytes(event_bytes_max + 1))

    async def test_leaving_without_having_joined_does_nothing(self, make: MakeSource) -> None:
        await make("a").leave()


async def _is_nothing(source: EventSource) -> bool:
    """Ask until the reader is told that it is offline."""
    await source.next_slice(0.05)
    return False
