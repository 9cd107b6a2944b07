"""The place of a time is found with few reads of the index, whatever its length."""

from __future__ import annotations

import pytest

from controller_service.window.event_times import offset_before_time
from pravega_common.event_index import IndexRecord, encode_records, index_record_bytes, page_bytes
from pravega_common.model.segments import SegmentInfo

count = 5_000
RECORDS = encode_records(IndexRecord(100 * (item + 1), item + 1, 1_000 + 10 * item) for item in range(count))


class Index:
    """An index segment whose first records may be truncated; notes what was read of it."""

    def __init__(self, truncated: int = 0) -> None:
        self.info = SegmentInfo("s/t/0.#epoch.0#index", truncated * index_record_bytes, len(RECORDS), is_sealed=False)
        self.reads: list[int] = []

    async def read(self, offset: int, bytes_max: int) -> bytes:
        assert offset >= self.info.start_offset
        assert bytes_max <= page_bytes
        self.reads.append(offset)
        return RECORDS[offset : offset + bytes_max]


def segment(start: int = 0) -> SegmentInfo:
    return SegmentInfo("s/t/0.#epoch.0", start, 100 * count + 50, is_sealed=False)


@pytest.mark.parametrize(
    ("time_ms", "offset"),
    [(0, 0), (1_000, 0), (1_001, 100), (1_010, 100), (1_011, 200), (21_005, 200_100), (10**13, 100 * count)],
)
async def test_all_events_of_the_time_lie_behind(time_ms: int, offset: int) -> None:
    index = Index()
    assert await offset_before_time(index.read, index.info, segment(), time_ms) == offset
    assert len(index.reads) <= 4


@pytest.mark.parametrize(("time_ms", "offset"), [(0, 7_777), (1_011, 7_777), (41_000, 400_000)])
async def test_what_was_truncated_is_left_out(time_ms: int, offset: int) -> None:
    index = Index(truncated=1_500)
    assert await offset_before_time(index.read, index.info, segment(7_777), time_ms) == offset


async def test_an_index_without_records_knows_the_head_alone() -> None:
    index = Index(truncated=count)
    assert await offset_before_time(index.read, index.info, segment(7), 10**13) == 7
    assert not index.reads
