"""Draws up the picture of a stream: each segment as a rectangle of epochs and keys.

An answer is bounded in epochs, in segment records read and in rectangles. Of more epochs than that it has every n-th
one (a fold); what would still be too much is left out at the old end, and the page asks for a shorter span there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.store.history import place_in
from controller_service.store.records import EpochRecord, SealedSegmentRecord, SegmentRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import CutIndex
from controller_service.window.answers import EpochColumn, SegmentFate, SegmentRectangle, StreamPicture
from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import segment_epoch, segment_number

columns_max: Final = 200
"""Epochs of one picture."""
segments_read_max: Final = 150_000
"""Segment records, in all of its epochs together."""
rectangles_max: Final = 6_000


@dataclass(slots=True)
class _Span:
    segment: SegmentRecord
    first: int
    last: int
    """The first and the last epoch of the picture that have it."""


@dataclass(frozen=True)
class PictureRecords:
    """The records of a picture: its epochs, the oldest first, and the segments in them by their ids."""

    epochs: Sequence[EpochRecord]
    spans: Mapping[int, _Span]
    fold: int
    left_out: int


def segment_label(identifier: int) -> str:
    """A short name of a segment: its number and the epoch that made it."""
    return f"{segment_number(identifier)}.{segment_epoch(identifier)}"


def chosen_epochs(first: int, last: int, segments: int) -> tuple[list[int], int]:
    """Evenly spread epochs from ``first`` to ``last``, the last one always among them, and their distance.

    ``segments``: of one epoch, as far as is known before the others are read.
    """
    count_max = max(2, min(columns_max, segments_read_max // max(1, segments)))
    fold = max(1, -(-(last - first + 1) // count_max))
    return list(range(last, first - 1, -fold))[::-1], fold


async def read_picture(context: StreamContext, first: int | None, last: int | None) -> PictureRecords:
    """``first`` and ``last``: the epochs to show; None for the oldest on record and the current one.

    ``InvalidArgument`` for a span that the stream does not have.
    """
    current, oldest = await context.current_epoch(), (await context.history()).oldest_epoch
    low, high = max(oldest, first or 0), current.epoch if last is None else last
    if not low <= high <= current.epoch:
        raise InvalidArgument(f"epochs {low} to {high}: the stream has epochs {oldest} to {current.epoch} on record")
    numbers, fold = chosen_epochs(low, high, len(current.segments))
    spans: dict[int, _Span] = {}
    epochs: list[EpochRecord] = []
    read = 0
    async for epoch in context.walk_epochs(numbers[::-1], some_removed=True):
        read += len(epoch.segments)
        new = sum(identifier not in spans for identifier in epoch.segment_ids)
        if epochs and (len(spans) + new > rectangles_max or read > segments_read_max):
            break
        epochs.append(epoch)
        for identifier, segment in zip(epoch.segment_ids, epoch.segments, strict=True):
            span = spans.setdefault(identifier, _Span(segment, epoch.epoch, epoch.epoch))
            span.first = epoch.epoch
    left_out = epochs[-1].epoch - numbers[0] if epochs else 0
    return PictureRecords(epochs[::-1], spans, fold, left_out)


async def picture_of(
    context: StreamContext, records: PictureRecords, infos: Mapping[int, SegmentInfo], unknown: str | None
) -> StreamPicture:
    """The answer. ``infos``: of the open segments that the stores told of; ``unknown``: why some are missing."""
    current, oldest = await context.current_epoch(), (await context.history()).oldest_epoch
    open_ids = frozenset(current.segment_ids)
    sealed = await context.stored_sealed([item for item in records.spans if item not in open_ids])
    cut = (await context.truncation()).cut
    head = CutIndex(await place_in(context, cut)) if cut else None
    return StreamPicture(
        oldest_epoch=oldest,
        current_epoch=current.epoch,
        epochs=[_column(epoch) for epoch in records.epochs],
        segments=_rectangles(records, open_ids, infos, sealed, head),
        fold=records.fold,
        left_out=records.left_out,
        unknown=unknown,
    )


def _rectangles(
    records: PictureRecords,
    open_ids: frozenset[int],
    infos: Mapping[int, SegmentInfo],
    sealed: Mapping[int, SealedSegmentRecord],
    head: CutIndex | None,
) -> list[SegmentRectangle]:
    columns = {epoch.epoch: index for index, epoch in enumerate(records.epochs)}
    made = {epoch.epoch: epoch.created_ms for epoch in records.epochs}
    rectangles = []
    for identifier, span in records.spans.items():
        info, record = infos.get(identifier), sealed.get(identifier)
        fate: SegmentFate = "sealed"
        if identifier in open_ids and not (info is not None and info.is_sealed):
            fate = "active"
        elif head is not None and head.is_after(span.segment):
            fate = "truncated"
        following = columns[span.last] + 1
        ended = made.get(record.replaced_in_epoch) if record else None
        if ended is None and fate != "active" and following < len(records.epochs):
            ended = records.epochs[following].created_ms
        rectangles.append(
            SegmentRectangle(
                id=segment_label(identifier),
                first_column=columns[span.first],
                last_column=columns[span.last],
                key_start=span.segment.key_start,
                key_end=span.segment.key_end,
                fate=fate,
                created_ms=span.segment.created_ms,
                ended_ms=ended,
                bytes=_bytes_of(info, record),
                start_offset=None if info is None else info.start_offset,
            )
        )
    return rectangles


def _bytes_of(info: SegmentInfo | None, sealed: SealedSegmentRecord | None) -> int | None:
    if sealed is not None:
        return sealed.size if sealed.size >= 0 else None
    return None if info is None else info.length


def _column(epoch: EpochRecord) -> EpochColumn:
    return EpochColumn(
        epoch=epoch.epoch,
        created_ms=epoch.created_ms,
        segments=len(epoch.segments),
        splits=epoch.splits,
        merges=epoch.merges,
        is_duplicate=epoch.reference_epoch != epoch.epoch,
    )
