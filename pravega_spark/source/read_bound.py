"""Bounds a read of a stream by a cut, segment by segment."""

from __future__ import annotations

from typing import Final

from pravega_common.model.segments import SegmentInfo, SegmentOffsets

offset_max: Final = 2**63 - 1


class ReadBound:
    """An end that a read must not pass: a cut of the stream, and which segments lie before it."""

    def __init__(self, cut: SegmentOffsets, before: list[int]) -> None:
        self._cut = cut
        self._before = set(before)

    def end_of(self, segment_id: int, offset: int, length: int) -> int:
        """The offset up to which a segment of ``length`` may be read by a reader that stands at ``offset``."""
        if segment_id in self._cut:
            return max(offset, min(length, self._cut[segment_id]))
        return length if segment_id in self._before else offset

    def is_reached(self, position: SegmentOffsets) -> bool:
        """Whether nothing that a read at a position may still take could lie before this end."""
        return all(self.end_of(item, offset, offset_max) == offset for item, offset in position.items())

    def unknown(self, position: SegmentOffsets) -> set[int]:
        """The segments of a position that may lie before what was left of the stream when this end was found.

        Not those that are newer than all at this end, and so behind it.
        """
        newest = max(self._cut, default=0)
        return {item for item in position if item < newest and item not in self._cut and item not in self._before}

    def is_behind(self, gone: set[int], following: SegmentOffsets) -> bool:
        """Whether deleted segments lay before this end, so that what they had was to be read.

        ``following``: what is there now for their keys, in which the stream goes on to this end if they lay before it.
        """
        oldest = min(self._cut, default=0)
        is_before = any(item in self._cut or item in self._before for item in following)
        return is_before or any(item < oldest for item in gone)


def ended_at(position: SegmentOffsets) -> dict[int, SegmentInfo]:
    """Segments as if each ended where the position stands, for a stream from which nothing is to be read."""
    return {item: SegmentInfo("", offset, offset, False) for item, offset in position.items()}
