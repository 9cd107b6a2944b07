"""Positions of watermarks over random splits and merges, against what they promise."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controller_service.store.records import EpochRecord, SegmentRecord
from controller_service.watermarks.positions import fill, gaps, join
from controller_service.watermarks.watermark import SegmentPosition
from pravega_common.names import segment_epoch

steps = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=8)
reports = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=6), max_size=6)


@dataclass
class History:
    """The epochs of a stream that is split and merged."""

    epochs: list[EpochRecord] = field(
        default_factory=lambda: [
            EpochRecord(0, 0, tuple(SegmentRecord(n, 0, 0, n / 4, (n + 1) / 4) for n in range(4)), 0)
        ]
    )

    def step(self, which: int, is_split: bool) -> None:
        last = self.epochs[-1]
        number, epoch = max(item.number for item in last.segments) + 1, last.epoch + 1
        old = list(last.segments)
        index = which % len(old)
        low, high = old[index].key_start, old[index].key_end
        if is_split:
            middle = (low + high) / 2
            new = [SegmentRecord(number, epoch, 0, low, middle), SegmentRecord(number + 1, epoch, 0, middle, high)]
            old[index : index + 1] = new
        else:
            high = old[min(index + 1, len(old) - 1)].key_end
            old[index : index + 2] = [SegmentRecord(number, epoch, 0, low, high)]
        self.epochs.append(EpochRecord(epoch, epoch, tuple(old), 0))

    def segments(self) -> list[SegmentRecord]:
        found = {item.segment_id: item for epoch in self.epochs for item in epoch.segments}
        return list(found.values())


def placed(segment: SegmentRecord, offset: int) -> SegmentPosition:
    return SegmentPosition(segment.segment_id, segment.key_start, segment.key_end, offset)


def is_behind(position: tuple[SegmentPosition, ...], report: SegmentPosition) -> bool:
    """Whether a position lies at or after a report, on all its keys."""
    overlapping = [item for item in position if item.key_start < report.key_end and item.key_end > report.key_start]
    return all(
        item.offset >= report.offset if item.segment_id == report.segment_id else item.segment_id > report.segment_id
        for item in overlapping
    )


@given(steps, reports)
def test_each_position_covers_the_keys_and_lies_behind_all_reports_and_the_last(
    scales: list[tuple[int, bool]], rounds: list[list[tuple[int, int]]]
) -> None:
    history = History()
    for which, is_split in scales:
        history.step(which, is_split)
    segments = history.segments()
    last: tuple[SegmentPosition, ...] = ()
    for chosen in rounds:
        marks = [placed(segments[which % len(segments)], offset) for which, offset in chosen]
        joined = join((*last, *marks))
        assert joined == join(reversed((*last, *marks)))
        position = fill(joined, history.epochs[max(segment_epoch(item.segment_id) for item in joined)])
        assert gaps(position) == []
        assert all(one.key_end <= other.key_start for one, other in itertools.pairwise(position))
        assert all(is_behind(position, report) for report in (*last, *marks))
        last = position
