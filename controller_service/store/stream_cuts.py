"""Compares stream cuts with the history of a stream (docs/controller-api.md 3.6, 3.9, 3.10), as pure functions.

A cut maps segment ids to offsets; an offset below 0 stands for a segment that was not reached yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller_service.store.records import EpochRecord, SegmentRecord
from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_epoch


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


def place(cut: SegmentOffsets, epochs: Sequence[EpochRecord]) -> PlacedCut:
    """``epochs``: those of ``epoch_bounds``. ``InvalidArgument`` if a segment never existed."""
    segments: dict[int, SegmentRecord] = {}
    span: dict[int, int] = {}
    for epoch in reversed(epochs):
        for segment in epoch.segments:
            identifier = segment.segment_id
            if identifier in cut and identifier not in span:
                segments[identifier] = segment
                span[identifier] = epoch.epoch
    missing = [identifier for identifier in cut if identifier not in span]
    if missing:
        raise InvalidArgument(f"segments {missing} are not of this stream")
    return PlacedCut(dict(cut), segments, span)


def is_valid(placed: PlacedCut) -> bool:
    """Whether the segments reached do not overlap, and every gap between them belongs to segments that follow.

    Each segment not reached yet must come after all those that it overlaps. Offsets are not compared with lengths.
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
    for identifier, offset in new.cut.items():
        if old.cut.get(identifier, offset) > offset:
            return False
        segment = new.segments[identifier]
        for other_id, other in old.segments.items():
            if other_id != identifier and segment.overlaps(other) and old.span[other_id] > new.span[identifier]:
                return False
    return True


def segments_before(
    placed: PlacedCut, epochs: Sequence[EpochRecord], since: PlacedCut | None
) -> dict[int, SegmentRecord]:
    """All segments of ``epochs`` that lie wholly before a cut, and not before ``since``.

    Two segments that overlap were never open together, so the one with the smaller id came first.
    """
    found: dict[int, SegmentRecord] = {}
    for epoch in epochs:
        for segment in epoch.segments:
            identifier = segment.segment_id
            if identifier in placed.cut or identifier in found or not _is_before(segment, placed):
                continue
            if since is None or not _is_before(segment, since):
                found[identifier] = segment
    return found


def _is_before(segment: SegmentRecord, placed: PlacedCut) -> bool:
    identifier = segment.segment_id
    if identifier in placed.cut:
        return False
    overlapping = [other for other in placed.segments.values() if segment.overlaps(other)]
    return bool(overlapping) and all(identifier < other.segment_id for other in overlapping)


def segments_between(first: PlacedCut, last: PlacedCut, epochs: Sequence[EpochRecord]) -> list[SegmentRecord]:
    """The segments from one cut to another, those of both cuts included, in no order.

    ``epochs``: from the first epoch of ``first`` to the last of ``last``.
    """
    found: dict[int, SegmentRecord] = {}
    for epoch in epochs:
        inner = first.last_epoch <= epoch.epoch <= last.first_epoch
        for segment in epoch.segments:
            if inner or (_at_or_after(segment, first) and _at_or_before(segment, last)):
                found[segment.segment_id] = segment
    return list(found.values())


def _at_or_after(segment: SegmentRecord, placed: PlacedCut) -> bool:
    return all(segment.segment_id >= other for other, record in placed.segments.items() if record.overlaps(segment))


def _at_or_before(segment: SegmentRecord, placed: PlacedCut) -> bool:
    return all(segment.segment_id <= other for other, record in placed.segments.items() if record.overlaps(segment))
