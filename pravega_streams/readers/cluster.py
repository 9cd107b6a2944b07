"""Joins what readers need of a cluster: the positions and successors of a stream, tables, and the stores' addresses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pravega_common.errors import InvalidArgument, NotFound, SegmentNotFound, StreamNotFound
from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
from pravega_common.names import offsets_by_name, parse_segment_name, segment_name, short_segment_name
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.joined import all_ended
from pravega_common.wire import commands as c
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.readers.group_state import HEAD, TAIL, GroupConfiguration, Positions, Start, StreamName, cuts_of
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient


class StreamMetadata(Protocol):
    """The questions of readers about streams. ``AsyncController`` asks a controller; a controller answers itself.

    Errors: ``NotFound`` for a stream that does not exist, ``Unavailable``, ``UnknownOutcome``.
    """

    async def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """Return the first position that is still there."""
        ...

    async def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        """Return the open segments; none for a sealed stream."""
        ...

    async def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        """Return what follows a segment; nothing while it is open, and at the end of a sealed stream."""
        ...

    async def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        """Return whether the cut's segments belong together and cover the key space."""
        ...

    async def segments_between(
        self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets
    ) -> Sequence[int]:
        """Return the ids of the segments from one cut to another; ``InvalidArgument`` where the end lies before."""
        ...


@dataclass(frozen=True, slots=True)
class ReaderCluster:
    """The clients that readers use, which may be shared with others."""

    metadata: StreamMetadata
    requests: RawClient
    tables: TableClient
    resolver: EndpointResolver
    clock: Clock = field(default_factory=SystemClock)

    async def info(self, segment: str) -> SegmentInfo:
        """The extent of a segment as its store knows it."""
        reply = await self.requests.call(
            segment, lambda rid: c.GetStreamSegmentInfo(rid, segment), c.StreamSegmentInfo, idempotent=True
        )
        return SegmentInfo(reply.segment, reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)

    async def start_positions(self, configuration: GroupConfiguration) -> dict[str, int]:
        """The segments and offsets at which a group begins; ``InvalidArgument`` for cuts that are not of the stream,
        ``StreamNotFound``."""
        positions: dict[str, int] = {}
        for (scope, stream), start in configuration.start.items():
            try:
                cut = await self._cut_of((scope, stream), start)
            except NotFound as error:
                raise StreamNotFound.of(scope, stream) from error
            positions |= offsets_by_name(scope, stream, cut)
        for bounded, end in configuration.end.items():
            _check_reached(bounded, "end", end)
            await self.check_cut(bounded, end)
        return positions

    async def check_ends(self, end: Mapping[StreamName, SegmentOffsets], positions: Positions) -> None:
        """``InvalidArgument`` if positions lie behind an end: a group would read on from there without one."""
        starts = cuts_of(positions)
        for stream, cut in end.items():
            # Pravega answers a cut that goes back with an error of its own, which says nothing of the cut.
            if any(offset < starts[stream].get(item, 0) for item, offset in cut.items()):
                raise InvalidArgument(f"cut {cut} lies before {starts[stream]} in stream {'/'.join(stream)}")
            await self.metadata.segments_between(*stream, starts[stream], cut)

    async def _cut_of(self, stream: StreamName, start: Start) -> SegmentOffsets:
        if start == HEAD:
            return await self.metadata.head_cut(*stream)
        if start == TAIL:
            return await self.tail_cut(*stream)
        if isinstance(start, str):
            raise InvalidArgument(f"{'/'.join(stream)} cannot start at {start!r}")
        # A cut does not say for which of its other segments they wait.
        _check_reached(stream, "start", start)
        await self.check_cut(stream, start)
        return start

    async def check_cut(self, stream: StreamName, cut: SegmentOffsets) -> None:
        """``InvalidArgument`` for a cut that is not of the stream."""
        if not cut or not await self.metadata.is_cut_valid(*stream, cut):
            raise InvalidArgument(f"{dict(cut)} is not a cut of stream {'/'.join(stream)}")

    async def tail_cut(self, scope: str, stream: str) -> dict[int, int]:
        """The present end of every open segment; of a sealed stream, the ends of its last segments."""
        current = [item.segment_id for item in await self.metadata.current_segments(scope, stream)]
        ids = current or await self._last_segments(scope, stream)
        infos = await all_ended(self.info(segment_name(scope, stream, item)) for item in ids)
        return {item: info.length for item, info in zip(ids, infos, strict=True)}

    async def _last_segments(self, scope: str, stream: str) -> list[int]:
        """A sealed stream lists no current segments: walk from the head to those without successors."""
        frontier, last = list(await self.metadata.head_cut(scope, stream)), []
        seen = set(frontier)
        while frontier:
            successors = await self.metadata.successors(scope, stream, segment_id := frontier.pop())
            if not successors:
                last.append(segment_id)
            new = {item.segment.segment_id for item in successors} - seen
            seen |= new
            frontier += sorted(new)
        return sorted(last)

    async def whole_cut(self, positions: Positions, future: Mapping[str, frozenset[int]]) -> dict[str, int]:
        """Positions of a group, with those segments at their ends that were read while a successor still waits.

        ``future``: the waiting successors with the predecessors that are still to be read. In a stream where that is no
        cut, as another successor of what was read is there already, or nothing is on record of what is waited for, they
        stand in it as not reached (offset -1).
        """
        whole = dict(positions)
        forgotten: set[StreamName] = set()
        for segment, waiting in future.items():
            name = parse_segment_name(segment)
            try:
                followers = await self.metadata.successors(name.scope, name.stream, min(waiting))
            except NotFound:
                forgotten.add((name.scope, name.stream))
                continue
            predecessors = {n for item in followers if item.segment.name == segment for n in item.predecessors}
            for number in predecessors - waiting:
                read = segment_name(name.scope, name.stream, number)
                if read not in whole:
                    whole[read] = await self._length_of_read(read)
        waited = cuts_of(dict.fromkeys(future, 0))
        torn = [stream for stream in waited if stream in forgotten or not await self._is_cut(stream, whole)]
        return _with_unreached(whole, positions, future, torn) if torn else whole

    async def _is_cut(self, stream: StreamName, positions: Positions) -> bool:
        """Whether a group could begin at its positions in a stream."""
        try:
            return await self.metadata.is_cut_valid(*stream, cuts_of(positions)[stream])
        except InvalidArgument:  # Of a segment that is forgotten.
            return False

    async def _length_of_read(self, segment: str) -> int:
        """The length of a segment that was read to its end; 0 for one that was truncated as a whole since then."""
        try:
            return (await self.info(segment)).length
        except SegmentNotFound:
            # Nobody knows its length any more. From whichever offset, nothing of it is left to come again.
            return 0


def _check_reached(stream: StreamName, verb: str, cut: SegmentOffsets) -> None:
    if unreached := [item for item, offset in cut.items() if offset < 0]:
        raise InvalidArgument(
            f"{'/'.join(stream)} cannot {verb} at a cut with segments that were not reached yet (offset below 0): "
            f"{', '.join(map(short_segment_name, unreached))}; take one once what lies before them is read"
        )


def _with_unreached(
    whole: Positions, positions: Positions, future: Mapping[str, frozenset[int]], torn: Collection[StreamName]
) -> dict[str, int]:
    """The whole cut, and in the streams ``torn`` the positions with the waiting segments as not reached."""

    def is_torn(segment: str) -> bool:
        name = parse_segment_name(segment)
        return (name.scope, name.stream) in torn

    left = {segment: offset for segment, offset in whole.items() if segment in positions or not is_torn(segment)}
    return left | {segment: -1 for segment in future if is_torn(segment)}
