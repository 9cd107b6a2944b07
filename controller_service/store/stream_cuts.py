"""Compares stream cuts with the history of a stream (docs/controller-api.md 3.6, 3.9, 3.10), as pure functions.

A cut maps segment ids to offsets; an offset below 0 stands for a segment that was not reached yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller_service.store.records import EpochRecord, SegmentRecord
from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_epoch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlacedCut:
    """A cut with its segments, and for each the latest epoch, not after the cut's last, that contains it."""

    cut: dict[int, int]
    segments: dict[int, SegmentRecord]
    span: dict[int, int]

    @property
    def first_epoch(self) -> int:
        return min(self.span.values())

    @property
    def last_epoch(self) -> int:
        return max(self.span.values())


def epoch_bounds(cut: SegmentOffsets) -> tuple[int, int]:
    """The epochs that must be read to place a cut, both included."""
    if not cut:
        raise InvalidArgument("a stream cut without segments")
    epochs = [segment_epoch(identifier) for identifier in cut]
    return min(epochs), max(epochs)


class CutPlacement:
    """Places a cut, epoch by epoch, the newest first."""

    def __init__(self, cut: SegmentOffsets) -> None:
        self._cut = dict(cut)
        self._segments: dict[int, SegmentRecord] = {}
        self._span: dict[int, int] = {}

    @property
    def missing(self) -> list[int]:
        """The segments that no epoch contained so far."""
        return [identifier for identifier in self._cut if identifier not in self._span]

    def look_at(self, epoch: EpochRecord) -> None:
        for segment in epoch.segments:
            identifier = segment.segment_id
            if identifier in self._cut and identifier not in self._span:
                self._segments[identifier] = segment
                self._span[identifier] = epoch.epoch

    def placed(self) -> PlacedCut:
        """``InvalidArgument`` if a segment never existed."""
        if self.missing:
            raise InvalidArgument(f"segments {self.missing} are not of this stream")
        return PlacedCut(self._cut, self._segments, self._span)


class RangeIndex(Generic[T]):
    """Finds the items whose key ranges overlap another range."""

    def __init__(self, items: Iterable[tuple[float, float, T]]) -> None:
        """``items``: lower edge, upper edge that is not part of the range, item."""
        items = list(items)
        self._edges = sorted({edge for low, high, _ in items for edge in (low, high)})
        self._covers: list[list[T]] = [[] for _ in self._edges]
        for low, high, item in items:
            for position in range(bisect_left(self._edges, low), bisect_left(self._edges, high)):
                self._covers[position].append(item)

    @property
    def covers_all(self) -> bool:
        """Whether every key is in the range of an item."""
        return bool(self._edges) and self._edges[0] <= 0.0 and self._edges[-1] >= 1.0 and all(self._covers[:-1])

    def overlapping(self, low: float, high: float) -> Iterator[T]:
        """An item may come several times."""
        first = max(0, bisect_right(self._edges, low) - 1)
        for position in range(first, bisect_left(self._edges, high)):
            yield from self._covers[position]


class CoveredKeys:
    """Joins key ranges into the part of the key space that they cover, kept as disjoint ranges in order."""

    def __init__(self) -> None:
        self._lows: list[float] = []
        self._highs: list[float] = []

    def overlap(self, low: float, high: float) -> bool:
        """Whether a range shares keys with what is covered."""
        position = bisect_right(self._highs, low)
        return position < len(self._lows) and self._lows[position] < high

    def cover(self, low: float, high: float) -> bool:
        """Whether all keys of a range are covered."""
        position = bisect_right(self._lows, low) - 1
        return position >= 0 and self._highs[position] >= high

    def free_in(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        """The parts of a range that are not covered, in order."""
        for position in range(bisect_right(self._highs, low), len(self._lows)):
            if self._lows[position] >= high:
                break
            if low < self._lows[position]:
                yield low, self._lows[position]
            low = self._highs[position]
        if low < high:
            yield low, high

    def add(self, low: float, high: float) -> None:
        first, last = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if first < last:
            low, high = min(low, self._lows[first]), max(high, self._highs[last - 1])
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]


class CutIndex:
    """Compares segments with a cut, in a time that hardly grows with the cut.

    Most segments of a long history are older, or newer, than all of a cut: those need not be looked up by their keys.
    """

    def __init__(self, placed: PlacedCut) -> None:
        self._placed = placed
        self._ids = RangeIndex(places_of(placed))
        self._oldest = min(placed.segments, default=-1) if self._ids.covers_all else -1
        """Every segment overlaps one of the cut's; without that, none is older than all that it overlaps for sure."""
        self._newest = max(placed.segments, default=-1)

    def overlapping(self, segment: SegmentRecord) -> Iterator[int]:
        """The ids of the cut's segments that stand in keys of a segment; one may come several times."""
        return self._ids.overlapping(segment.key_start, segment.key_end)

    def is_after(self, segment: SegmentRecord) -> bool:
        """Whether the cut lies wholly after a segment.

        Two segments that overlap were never open together, so the one with the smaller id came first.
        """
        identifier = segment.segment_id
        if identifier < self._oldest or identifier >= self._newest:
            return identifier < self._oldest
        return identifier not in self._placed.cut and identifier < min(self.overlapping(segment), default=-1)

    def is_at_or_before(self, segment: SegmentRecord) -> bool:
        identifier = segment.segment_id
        return identifier >= self._newest or identifier >= max(self.overlapping(segment), default=-1)

    def is_at_or_after(self, segment: SegmentRecord) -> bool:
        identifier = segment.segment_id
        return identifier <= self._oldest or identifier <= min(self.overlapping(segment), default=identifier)


def is_valid(placed: PlacedCut) -> bool:
    """Whether the segments reached do not overlap, and every gap between them belongs to segments that follow.

    Each segment not reached yet must come after all those that it overlaps. Offsets are not compared with lengths.
    ``cut_validity.py`` follows the gaps through the epochs, too.
    """
    reached = sorted(
        (placed.segments[identifier] for identifier, offset in placed.cut.items() if offset >= 0),
        key=lambda segment: segment.key_start,
    )
    future = [placed.segments[identifier] for identifier, offset in placed.cut.items() if offset < 0]
    for segment in future:
        if any(segment.overlaps(other) and segment.segment_id < other.segment_id for other in reached):
            return False
    edge = 0.0
    for low, high in [*((segment.key_start, segment.key_end) for segment in reached), (1.0, 1.0)]:
        if low < edge:
            return False
        if low > edge and not any(segment.key_start < low and segment.key_end > edge for segment in future):
            return False
        edge = high
    return True


def is_at_or_after(new: PlacedCut, old: PlacedCut) -> bool:
    """Whether no part of ``new`` lies before ``old``."""
    if any(old.cut.get(identifier, offset) > offset for identifier, offset in new.cut.items()):
        return False
    others = RangeIndex(places_of(old))
    return all(
        identifier >= max(others.overlapping(low, high), default=identifier) for low, high, identifier in places_of(new)
    )


def places_of(placed: PlacedCut) -> list[tuple[float, float, int]]:
    """The keys with the segment in which a cut stands there: from, to, its id.

    A segment not reached yet has only the keys that no segment reached has, and none before it of its kind.
    """
    reached = [segment for identifier, segment in placed.segments.items() if placed.cut[identifier] >= 0]
    return [*((segment.key_start, segment.key_end, segment.segment_id) for segment in reached), *_gaps_of(placed)]


def _gaps_of(placed: PlacedCut) -> list[tuple[float, float, int]]:
    """The keys that no segment reached has, each with the first of the others that has it: from, to, its id."""
    covered = CoveredKeys()
    for identifier, offset in placed.cut.items():
        if offset >= 0:
            covered.add(placed.segments[identifier].key_start, placed.segments[identifier].key_end)
    gaps = []
    for identifier in sorted(identifier for identifier, offset in placed.cut.items() if offset < 0):
        segment = placed.segments[identifier]
        free = covered.free_in(segment.key_start, segment.key_end)
        gaps += [(low, high, identifier) for low, high in free]
        covered.add(segment.key_start, segment.key_end)
    return gaps


class SegmentsBefore:
    """Finds all segments that lie wholly before a cut, and not before ``since``, in a walk over successive epochs."""

    def __init__(self, cut: PlacedCut, since: PlacedCut | None) -> None:
        self._cut = CutIndex(cut)
        self._since = None if since is None else CutIndex(since)
        self._seen: frozenset[int] = frozenset()
        """The segments of the epoch before: a segment is in one run of epochs."""

    def new_in(self, epoch: EpochRecord) -> list[SegmentRecord]:
        """Those that were in none of the epochs before."""
        identifiers = epoch.segment_ids
        seen, self._seen = self._seen, frozenset(identifiers)
        fresh = [
            segment for identifier, segment in zip(identifiers, epoch.segments, strict=True) if identifier not in seen
        ]
        since = self._since
        return [
            segment
            for segment in fresh
            if self._cut.is_after(segment) and (since is None or not since.is_after(segment))
        ]


class SegmentsBetween:
    """Finds the segments from one cut to another, those of both cuts included, in a walk over successive epochs.

    The walk goes from the first epoch of ``first`` to the last of ``last``.
    """

    def __init__(self, first: PlacedCut, last: PlacedCut) -> None:
        self._inner = range(first.last_epoch, last.first_epoch + 1)
        self._first = CutIndex(first)
        self._last = CutIndex(last)
        self._found: set[int] = set()
        """Those of the epoch before that were found: a segment is in one run of epochs."""

    def new_in(self, epoch: EpochRecord) -> list[SegmentRecord]:
        """Those that were not found before."""
        is_inner = epoch.epoch in self._inner
        before, self._found = self._found, set()
        new: list[SegmentRecord] = []
        for identifier, segment in zip(epoch.segment_ids, epoch.segments, strict=True):
            if identifier not in before:
                if not is_inner and not self._is_between(segment):
                    continue
                new.append(segment)
            self._found.add(identifier)
        return new

    def _is_between(self, segment: SegmentRecord) -> bool:
        return self._first.is_at_or_before(segment) and self._last.is_at_or_after(segment)
