"""Joins positions in segments of several epochs into one that covers the key space and lies behind all (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller_service.store.records import EpochRecord
from controller_service.store.stream_cuts import CoveredKeys
from controller_service.watermarks.watermark import SegmentPosition
from pravega_common.errors import DataCorruption


def join(positions: Iterable[SegmentPosition]) -> tuple[SegmentPosition, ...]:
    """The furthest of the positions, by key. May leave gaps.

    Two segments that share keys were never open together, so the one with the larger id comes later: a position in it
    is behind every one in the other.
    """
    furthest: dict[int, SegmentPosition] = {}
    for item in positions:
        known = furthest.get(item.segment_id)
        if known is None or known.offset < item.offset:
            furthest[item.segment_id] = item
    passed = CoveredKeys()
    kept = []
    for identifier in sorted(furthest, reverse=True):
        item = furthest[identifier]
        if not passed.overlap(item.key_start, item.key_end):
            kept.append(item)
        passed.add(item.key_start, item.key_end)
    return tuple(sorted(kept, key=lambda item: item.key_start))


def gaps(position: Sequence[SegmentPosition]) -> list[tuple[float, float]]:
    """The key ranges that a joined position does not cover."""
    found = []
    edge = 0.0
    for item in position:
        if item.key_start > edge:
            found.append((edge, item.key_start))
        edge = item.key_end
    if edge < 1.0:
        found.append((edge, 1.0))
    return found


def fill(position: Sequence[SegmentPosition], newest: EpochRecord) -> tuple[SegmentPosition, ...]:
    """The position without gaps: they are filled with the beginnings of segments of an epoch.

    ``newest`` is the epoch in which the position's newest segment was created. A segment that fills a gap may cover
    keys of a position before it too, which then goes, and leaves a gap again: at worst only the epoch's are left.
    ``DataCorruption`` for a position in segments that the stream never had: a mark stream can be written by clients.
    """
    filled = tuple(position)
    while missing := gaps(filled):
        uncovered = CoveredKeys()
        for low, high in missing:
            uncovered.add(low, high)
        added = (
            SegmentPosition(segment.segment_id, segment.key_start, segment.key_end, 0)
            for segment in newest.segments
            if uncovered.overlap(segment.key_start, segment.key_end)
        )
        before, filled = filled, join((*filled, *added))
        if filled == before:
            raise DataCorruption(
                f"a position in segments of another stream: epoch {newest.epoch} does not fill {missing[:10]}"
            )
    return filled
