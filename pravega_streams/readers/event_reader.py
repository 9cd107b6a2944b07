"""Reads the events of those segments that a reader group gives to one of its readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from pravega_common.errors import DataCorruption, NotFound, PravegaError, SegmentNotFound, SegmentTruncated
from pravega_common.invariants import unreachable
from pravega_common.names import parse_segment_name
from pravega_streams.errors import EventsTruncated, ReaderOffline
from pravega_streams.readers import transitions
from pravega_streams.readers.balance import should_release
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.cut_publisher import CutPublisher
from pravega_streams.readers.group_state import GroupMember, GroupState, Positions
from pravega_streams.readers.group_table import GroupTable
from pravega_streams.readers.lost_place import find_place
from pravega_streams.readers.segment_feed import SegmentFeed, SegmentReads
from pravega_streams.readers.slices import ReadEvent, SegmentSlice

slice_time_default_s: Final = 1.0
"""How long ``get_segment_slice`` waits for events by default."""
successors_delay_s: Final = 0.1
"""The pause before the successors of a segment are looked up again that was sealed before they are known."""
successors_delay_max_s: Final = 2.0
"""The pauses double up to this: a scale stands while a store is away, and all readers of the stream wait for it."""


class EventReader:
    """One reader of a group. Made by ``ReaderGroup.create_reader``; not for several tasks at a time.

    A slice counts as read once it is released. An event of ``events`` counts as read when the next one is asked for, or
    when the reader leaves, unless it leaves ``async with`` by an exception. What was read is recorded in the
    group every ``refresh_time_ms`` while slices are asked for, when a segment changes its owner, and at the end: after
    a death, events read since then come again. Nothing else comes twice, and the events of a key come in order.

    Errors: ``ReaderOffline`` once the reader was taken offline, also by others; ``EventsTruncated`` in place of events
    that are gone, after which reading goes on; ``DataCorruption``; ``Unavailable`` and ``UnknownOutcome``, after which
    the call may be repeated.
    """

    def __init__(
        self, cluster: ReaderCluster, table: GroupTable, member: GroupMember, publisher: CutPublisher | None = None
    ) -> None:
        self.reader_id = member.reader
        self._cluster = cluster
        self._table = table
        self._member = member
        self._publisher = publisher
        self._publication: asyncio.Task[None] | None = None
        self._reads = SegmentReads(cluster.resolver)
        self._feeds: dict[str, SegmentFeed] = {}
        self._news = asyncio.Event()
        self._refresh_at_s = 0.0
        self._unfollowed: dict[str, tuple[float, float]] = {}
        """The segments that were read to the end and have no successors yet: when to ask again, after which pause."""
        self._untold: list[EventsTruncated] = []
        """What the group has lost with the place that this reader took it from, one a segment."""
        self._is_offline = False
        self._leaves_at: Positions | None = None
        """The positions of a reader that is offline and may be in the group still."""
        self._piece: SegmentSlice | None = None
        self._event: ReadEvent | None = None

    async def __aenter__(self) -> EventReader:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._piece is not None and self._event is not None:
            self._piece.move_to(self._event.offset)
        await self.reader_offline()

    # ---- events

    async def events(self) -> AsyncIterator[ReadEvent]:
        """All events of this reader's segments, until the group has read all that it is to read."""
        while not self.is_finished:
            piece = await self.get_segment_slice()
            for event in self.in_turn(piece) if piece is not None else ():
                yield event

    def in_turn(self, piece: SegmentSlice) -> Iterator[ReadEvent]:
        """The events of a slice, each of which counts as read when the next one, or the next slice, is asked for."""
        self._piece = piece
        for self._event in piece:
            yield self._event

    def _release_piece(self) -> None:
        """Give the slice back that ``in_turn`` works on."""
        piece, self._piece, self._event = self._piece, None, None
        if piece is not None:
            self.release_segment(piece)

    @property
    def is_finished(self) -> bool:
        """Whether the group has read everything up to its end cuts, or all streams are sealed and read, and this reader
        has told of all that was lost."""
        return not self._feeds and not self._untold and self._table.state.is_finished

    @property
    def readers_seen(self) -> list[str]:
        """The readers of the group, this one included, as of its last look at the group; no call is made."""
        return self._table.state.readers

    async def get_segment_slice(self, timeout_s: float = slice_time_default_s) -> SegmentSlice | None:
        """Some events of one segment; None if there were none in time. Give it back with ``release_segment``.

        Slices of other segments may be asked for meanwhile.
        """
        self._release_piece()
        deadline_s = self._now_s() + timeout_s
        while True:
            self._news.clear()
            await self._refresh_if_due()
            await self._finish_exhausted()
            if self._untold:
                raise self._untold.pop(0)
            if (piece := self._take()) is not None:
                return piece
            await self._raise_stuck()
            until_s = min(deadline_s, self._refresh_at_s, *(ask_at_s for ask_at_s, _ in self._unfollowed.values()))
            try:
                async with asyncio.timeout(max(0.0, until_s - self._now_s())):
                    await self._news.wait()
            except TimeoutError:
                if self._now_s() >= deadline_s:
                    return None

    def release_segment(self, piece: SegmentSlice) -> None:
        """Give a slice back, once: the events taken from it count as read, the others come again."""
        self._check_online()
        feed = self._feeds.get(piece.segment)
        if feed is not None and feed.give_back(piece):
            self._news.set()

    def release_segment_at(self, piece: SegmentSlice, offset: int) -> None:
        """Give a slice back as read up to an offset, at which an event of it begins or ends."""
        piece.move_to(offset)
        self.release_segment(piece)

    async def reader_offline(self) -> None:
        """Leave the group; other readers go on where this one stands. Slices that are out count as not read.

        After an error this reader reads nothing more, and the call is to be repeated: it may be in the group still.
        """
        if not self._is_offline:
            self._release_piece()
            self._leaves_at = self._positions()
            self._close()
        if (positions := self._leaves_at) is not None:
            await self._table.update(lambda state: transitions.leave(state, self._member, positions))
            self._leaves_at = None

    # ---- the group

    async def refresh(self) -> None:
        """Record the positions now, and take or give back segments as is due; else done from time to time."""
        self._check_online()

        def transition(state: GroupState) -> GroupState:
            state = transitions.record(state, self._member, self._positions())
            state = transitions.acquire(state, self._member)
            idle = [feed for feed in reversed(self._feeds.values()) if not feed.is_out]
            surplus = idle[: should_release(state, self._member.reader)]
            return transitions.release(state, self._member, {feed.segment: feed.offset for feed in surplus})

        # If this fails the group may have changed for all that: no event is handed out before another look at it.
        self._refresh_at_s = self._now_s()
        await self._change(transition)
        self._refresh_at_s = self._now_s() + self._table.state.config.refresh_time_ms / 1000
        self._publish_if_due()

    def _publish_if_due(self) -> None:
        """Begin to publish the recorded positions. In a task: the controller may be away, and the stores are not."""
        if (last := self._publication) is not None and last.done():
            self._publication = None
            last.result()  # A fault of the program is not to end unseen.
        state, reader = self._table.state, self._member.reader
        if self._publication is None and self._publisher is not None and self._publisher.is_due(state, reader):
            work = self._publisher.publish_recorded(state)
            self._publication = asyncio.create_task(work, name=f"publish cuts of {reader}")

    async def _refresh_if_due(self) -> None:
        self._check_online()
        if self._now_s() >= self._refresh_at_s:
            await self.refresh()

    async def _change(self, transition: transitions.Transition) -> None:
        """Apply a transition, and read the segments that are this reader's then, and no others."""
        try:
            state = await self._table.update(transition)
            held = transitions.segments_of(state, self._member)
        except ReaderOffline:
            self._close()
            raise
        for segment in self._feeds.keys() - held.keys():
            self._feeds.pop(segment).stop()
        for segment, offset in held.items():
            feed = self._feeds.get(segment)
            if feed is None:
                end = state.config.end_of(segment)
                feed = SegmentFeed(segment, offset, end, self._reads, self._cluster.clock, self._news.set)
                self._feeds[segment] = feed
                feed.start()
            elif feed.offset < offset and not feed.is_out:
                # Given back and taken again by changes whose outcome did not come: others have read meanwhile.
                feed.start_at(offset)

    async def _finish_exhausted(self) -> None:
        exhausted = {segment: feed for segment, feed in self._feeds.items() if feed.is_exhausted}
        self._unfollowed = {segment: waits for segment, waits in self._unfollowed.items() if segment in exhausted}
        for segment, feed in exhausted.items():
            ask_at_s, pause_s = self._unfollowed.get(segment, (0.0, successors_delay_s))
            if self._now_s() < ask_at_s or segment not in self._feeds:
                continue
            self._unfollowed.pop(segment, None)
            try:
                successors = await self._successors(feed)
            except NotFound:
                successors = None
                await self._go_on_at_head(feed)
            if successors is not None:
                await self._complete(feed, successors)
            elif segment in self._feeds:
                self._unfollowed[segment] = self._now_s() + pause_s, min(2 * pause_s, successors_delay_max_s)

    async def _complete(self, feed: SegmentFeed, successors: dict[str, frozenset[int]]) -> None:
        def transition(state: GroupState) -> GroupState:
            state = transitions.record(state, self._member, self._positions())
            state = transitions.complete(state, self._member, feed.segment, successors)
            return transitions.acquire(state, self._member)

        await self._change(transition)

    async def _successors(self, feed: SegmentFeed) -> dict[str, frozenset[int]] | None:
        """The segments to be read behind one that was read to its end; None if they are not known yet."""
        end = self._table.state.config.end_of(feed.segment)
        if end is not None and feed.offset >= end:
            return {}
        return await self._following(feed)

    async def _following(self, feed: SegmentFeed) -> dict[str, frozenset[int]] | None:
        """The successors of a segment in its stream, wherever the group ends; None if they are not known yet."""
        name = parse_segment_name(feed.segment)
        metadata = self._cluster.metadata
        found = await metadata.successors(name.scope, name.stream, name.segment_id)
        if not found:
            if await metadata.current_segments(name.scope, name.stream):
                # Sealed by a scale that is not done: the stream goes on.
                return None
            # A scale may have ended since the first answer, before the stream was sealed: this one is final.
            found = await metadata.successors(name.scope, name.stream, name.segment_id)
        return {item.segment.name: frozenset(item.predecessors) for item in found}

    # ---- segments

    def _take(self) -> SegmentSlice | None:
        """A slice of the segment that has waited longest."""
        for segment, feed in self._feeds.items():
            if (piece := feed.take()) is not None:
                self._feeds[segment] = self._feeds.pop(segment)
                return piece
        return None

    async def _raise_stuck(self) -> None:
        feed = next((feed for feed in self._feeds.values() if feed.is_stuck), None)
        if feed is None:
            return
        match feed.failure:
            case SegmentTruncated():
                await self._skip(feed)
            case SegmentNotFound() as error:
                raise await self._skip_segment(feed, error)
            case None:
                unreachable("a segment without a failure is stuck", segment=feed.segment)
            case failure:
                if isinstance(failure, PravegaError) and not isinstance(failure, DataCorruption):
                    feed.start()
                raise failure

    async def _skip(self, feed: SegmentFeed) -> None:
        """Go on where a truncated segment begins now."""
        offset = feed.offset
        try:
            start = (await self._cluster.info(feed.segment)).start_offset
        except SegmentNotFound as error:
            raise await self._skip_segment(feed, error) from error
        feed.start_at(max(start, offset))
        if start > offset:
            raise EventsTruncated(feed.segment, offset, start)

    async def _skip_segment(self, feed: SegmentFeed, error: SegmentNotFound) -> PravegaError:
        """A segment that is gone was truncated as a whole, if its stream goes on behind it; its end counts as read."""
        try:
            successors = await self._following(feed)
        except NotFound:
            successors = None
        if successors is None:
            await self._go_on_at_head(feed)
            if self._untold:
                return self._untold.pop(0)
        if not successors:
            if feed.segment in self._feeds:
                feed.start()
            return error
        if self._table.state.config.end_of(feed.segment) is not None:
            successors = {}
        await self._complete(feed, successors)
        return EventsTruncated(feed.segment, feed.offset, None)

    async def _go_on_at_head(self, feed: SegmentFeed) -> None:
        """Take the group from segments that nothing is known to follow to the head of their stream, or past a stream
        that is deleted. Nothing happens if the group has moved meanwhile or a checkpoint waits: it is tried again then.

        What was read to its end of a deleted stream is not lost. What lay behind a forgotten segment nobody knows.
        """
        name = parse_segment_name(feed.segment)
        state = self._table.state
        place = await find_place(self._cluster.metadata, state, (name.scope, name.stream))
        lost = {segment: offset for segment, offset in state.held_segments() if segment in place.gone}
        lost |= {segment: offset for segment, offset in self._positions().items() if segment in lost}
        if not place.starts and feed.is_exhausted:
            lost.pop(feed.segment, None)

        def transition(state: GroupState) -> GroupState:
            state = transitions.record(state, self._member, self._positions())
            state = transitions.go_on_at(state, self._member, place)
            return transitions.acquire(state, self._member)

        await self._change(transition)
        if feed.segment not in self._feeds:
            self._untold += (EventsTruncated(segment, offset, None) for segment, offset in sorted(lost.items()))

    def _positions(self) -> dict[str, int]:
        positions = {segment: feed.offset for segment, feed in self._feeds.items()}
        if self._event is not None and self._event.segment in positions:
            positions[self._event.segment] = self._event.offset
        return positions

    def _check_online(self) -> None:
        if self._is_offline:
            raise ReaderOffline(f"reader {self.reader_id} is offline; create another one")

    def _close(self) -> None:
        self._is_offline = True
        for feed in self._feeds.values():
            feed.stop()
        self._feeds.clear()
        self._reads.close()
        if self._publication is not None:
            self._publication.cancel()

    def _now_s(self) -> float:
        return self._cluster.clock.monotonic_s()
