"""Reads the history of a stream page by page, however many epochs it has (docs/controller-api.md 3.6, 3.10).

Nothing here holds more than one page of epochs in memory, and no request to a table asks for more than that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from controller_service.errors import CutTruncated
from controller_service.store.records import SegmentRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import (
    CutPlacement,
    PlacedCut,
    SegmentsBefore,
    SegmentsBetween,
    epoch_bounds,
    is_at_or_after,
)
from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_epoch, segments_per_stream_max

segments_per_page_max: Final = 1_000
"""Segments that a walk hands out at once, and that its callers ask stores about at once."""
cut_segments_max: Final = 2 * segments_per_stream_max
"""Segments of a stream cut: those that were reached, which do not overlap, and as many that follow them."""


async def place_in(context: StreamContext, cut: SegmentOffsets) -> PlacedCut:
    """The cut with its segments; ``InvalidArgument`` if it names one that the stream never had, and its subclass
    ``CutTruncated`` if it may have had it before the oldest epoch on record.

    A cut of one moment costs the reading of one epoch. Of other segments the records of their replacement name the
    epochs to read, so nothing in between is.
    """
    if len(cut) > cut_segments_max:
        raise InvalidArgument(f"a cut of {len(cut)} segments: no cut has more than {cut_segments_max}")
    low, high = epoch_bounds(cut)
    current = await context.current_epoch()
    if low < 0 or high > current.epoch:
        raise InvalidArgument(f"{dict(cut)} names epochs that stream {context.name} does not have")
    oldest = (await context.history()).oldest_epoch
    # Segments that were all made before an epoch are not the whole of it, nor of any later one: one at least was
    # replaced before.
    if high < oldest:
        raise _truncated(context, cut, oldest)
    placement = CutPlacement(cut)
    placement.look_at(await context.epoch(high))
    if placement.missing:
        replaced = await context.stored_sealed(placement.missing)
        last_epochs = {min(high, record.replaced_in_epoch - 1) for record in replaced.values()}
        forgotten = any(segment_epoch(item) < oldest for item in placement.missing if item not in replaced)
        if forgotten or min(last_epochs, default=oldest) < oldest:
            raise _truncated(context, cut, oldest)
        async for epoch in context.walk_epochs(sorted(last_epochs - {high}, reverse=True)):
            placement.look_at(epoch)
    return placement.placed()


def _truncated(context: StreamContext, cut: SegmentOffsets, oldest: int) -> CutTruncated:
    return CutTruncated(
        f"{dict(cut)} names segments from before epoch {oldest}, the oldest on record of stream {context.name}: they "
        "lie before its head, where reading may begin"
    )


async def walk_before(
    context: StreamContext, cut: PlacedCut, since: PlacedCut | None
) -> AsyncIterator[list[SegmentRecord]]:
    """All segments that lie wholly before a cut, and not before ``since``, a page at a time."""
    walk = SegmentsBefore(cut, since)
    page: list[SegmentRecord] = []
    async for epoch in context.walk_epochs(range(since.first_epoch if since else 0, cut.last_epoch + 1)):
        page += walk.new_in(epoch)
        while len(page) >= segments_per_page_max:
            yield page[:segments_per_page_max]
            del page[:segments_per_page_max]
    if page:
        yield page


async def segments_between(context: StreamContext, first: PlacedCut, last: PlacedCut) -> list[int]:
    """The ids of the segments from one cut to another, those of both cuts included. ``InvalidArgument`` if the last one
    lies before the first."""
    if not is_at_or_after(last, first):
        raise InvalidArgument(f"cut {last.cut} lies before {first.cut} in stream {context.name}")
    walk = SegmentsBetween(first, last)
    found: list[int] = []
    async for epoch in context.walk_epochs(range(first.first_epoch, last.last_epoch + 1)):
        found += [segment.segment_id for segment in walk.new_in(epoch)]
    return found


async def bytes_between(context: StreamContext, old: PlacedCut | None, new: PlacedCut) -> int:
    """Bytes from one cut, or the start of the stream, to a later cut: the rest of the segments in between, and the new
    offsets."""
    passed = dict(old.cut) if old is not None else {}
    total = sum(max(0, offset) - max(0, passed.get(identifier, 0)) for identifier, offset in new.cut.items())
    async for page in walk_before(context, new, old):
        sizes = await context.stored_sealed([segment.segment_id for segment in page])
        total += sum(record.size - max(0, passed.get(identifier, 0)) for identifier, record in sizes.items())
    return total
