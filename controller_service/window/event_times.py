"""Finds the place in a segment behind which lie all events of a time or later, by the store's index of events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pravega_common.event_index import (
    LENGTH,
    TIME_MS,
    RecordPage,
    RecordSearch,
    index_record_bytes,
    page_range,
    page_records,
)
from pravega_common.model.segments import SegmentInfo
from pravega_streams.segment.index_pages import records_of

ReadBytes = Callable[[int, int], Awaitable[bytes]]
"""Reads an index segment from an offset on, at most a number of bytes, in whole records."""


async def offset_before_time(read: ReadBytes, index: SegmentInfo, segment: SegmentInfo, time_ms: int) -> int:
    """The last indexed boundary with an earlier time, else the segment's start offset (``EventIndex`` says the same).

    Behind it may come some earlier events: at most a stretch of the index. Costs a read for each step of a search over
    pages of 24 KiB.
    """
    first, end = records_of(index)

    async def page(number: int) -> RecordPage:
        low, high = page_range(number, first, end)
        data = await read(low * index_record_bytes, (high - low) * index_record_bytes)
        return RecordPage(low, data)

    search = RecordSearch(first, end, TIME_MS, time_ms)
    while (wanted := search.wanted) is not None:
        search.feed(await page(wanted))
    if search.found <= first:
        return segment.start_offset
    below = search.found - 1
    length = (await page(below // page_records)).record(below)[LENGTH]
    return min(max(length, segment.start_offset), segment.length)
