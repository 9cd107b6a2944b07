"""Plans the spans and partitions of a read from positions, by pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.names import segment_name, split_scoped_name
from pravega_spark.options.definitions import partitions_max
from pravega_spark.source.offsets import OffsetsByStream, SourceOffset

packed_bytes_min: Final = 1024 * 1024
"""Spans that have no more together share a partition: to start a task takes longer than to read them."""
packed_partitions_min: Final = 64
"""Small spans are packed until there are about this many partitions."""


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of one segment from ``start`` (included) to ``end`` (excluded), both between two events."""

    scope: str
    stream: str
    segment_id: int
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def segment(self) -> str:
        """The qualified name of the segment."""
        return segment_name(self.scope, self.stream, self.segment_id)


def spans_of_batch(start: OffsetsByStream, offset: SourceOffset) -> list[Span]:
    """The spans of a micro-batch that begins at ``start`` and ends at ``offset``: at most one of each segment.

    A stream that is not in ``start`` is not read: its position is where its next batch begins. A position goes back
    only where the segment is of another stream of the name: it is read from its beginning.
    """
    spans = []
    for name in sorted(start):
        scope, stream = split_scoped_name(name)
        ends = {**offset.ended.get(name, {}), **offset.position.get(name, {})}
        for segment_id in sorted(ends):
            first = start[name].get(segment_id, 0)
            if first > ends[segment_id]:
                first = 0
            if first < ends[segment_id]:
                spans.append(Span(scope, stream, segment_id, first, ends[segment_id]))
    return spans


def share(limit: int, backlogs: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The share of a limit for each backlog: in proportion to it, at least 1, and all of it when the limit allows."""
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    return {key: max(1, limit * backlog // total) if backlog else 0 for key, backlog in backlogs.items()}


def split(
    spans: Sequence[Span],
    min_partitions: int | None,
    max_partition_bytes: int | None,
    locate: Callable[[Span, int], int],
) -> list[Span]:
    """Cut long spans until there are ``min_partitions`` and none exceeds ``max_partition_bytes``, about, or there are
    ``partitions_max`` more than spans.

    ``locate(span, offset)`` gives the first event boundary at or after an offset of the span.
    """
    total = sum(span.length for span in spans)
    piece_bytes = total
    if min_partitions is not None and min_partitions > len(spans):
        piece_bytes = max(1, -(-total // min_partitions))
    if max_partition_bytes is not None:
        piece_bytes = max(min(piece_bytes, max_partition_bytes), -(-total // partitions_max))
    return [piece for span in spans for piece in _split_one(span, piece_bytes, locate)]


def _split_one(span: Span, piece_bytes: int, locate: Callable[[Span, int], int]) -> list[Span]:
    if span.length <= piece_bytes:
        return [span]
    count = -(-span.length // piece_bytes)
    borders = [span.start]
    for index in range(1, count):
        border = locate(span, span.start + span.length * index // count)
        if borders[-1] < border < span.end:
            borders.append(border)
    borders.append(span.end)
    return [Span(span.scope, span.stream, span.segment_id, first, last) for first, last in itertools.pairwise(borders)]


def pack(spans: Sequence[Span], pack_bytes: int) -> list[tuple[Span, ...]]:
    """Put successive spans together, as long as they have at most ``pack_bytes``; a larger one stays alone."""
    packs: list[list[Span]] = []
    left = 0
    for span in spans:
        if span.length > left:
            packs.append([])
            left = pack_bytes
        packs[-1].append(span)
        left -= span.length
    return [tuple(some) for some in packs]


def pack_bytes_of(spans: Sequence[Span], max_partition_bytes: int, packed_bytes: int) -> int:
    """Bytes up to which small spans share a partition, so that there are still enough partitions for a cluster."""
    total = sum(span.length for span in spans)
    return min(max_partition_bytes, max(packed_bytes, total // packed_partitions_min))


def packs_of_batch(
    pieces: Sequence[Span], min_partitions: int | None, max_partition_bytes: int | None, packed_bytes: int
) -> list[tuple[Span, ...]]:
    """The spans of each partition of a batch: a task a span would cost a small batch more than all of its bytes.

    ``packed_bytes``: up to which spans share one; 0 for a partition a span.
    """
    if min_partitions is not None or not packed_bytes:
        return [(piece,) for piece in pieces]
    most_bytes = sum(piece.length for piece in pieces) if max_partition_bytes is None else max_partition_bytes
    return pack(pieces, pack_bytes_of(pieces, most_bytes, packed_bytes))


def lag_bytes(position: OffsetsByStream, available: OffsetsByStream) -> int:
    """Bytes that are there and not read, of the segments that both name."""
    return sum(
        max(0, end - position[stream].get(segment_id, end))
        for stream, ends in available.items()
        if stream in position
        for segment_id, end in ends.items()
    )
