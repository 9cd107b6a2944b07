"""Counts what ``stream info`` and ``stream list`` show on request: events, rates, sizes, the lag of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pravega_common.errors import StreamNotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_spark.commands.arguments import rate_time_s
from pravega_spark.commands.output import counted
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pravega_spark.gateway.contract import StreamGateway


@dataclass(frozen=True, slots=True)
class Amount:
    """The bytes and events between two positions; ``events`` is None where the stores keep no index of events."""

    size_bytes: int
    events: int | None

    @property
    def events_text(self) -> str:
        return "an unknown number of events" if self.events is None else counted(self.events, "event")


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The lag of a query behind the tail, by its checkpoint."""

    batch_id: int
    behind: Amount

    def to_json(self) -> dict[str, Any]:
        return {"batch": self.batch_id, "bytes": self.behind.size_bytes, "events": self.behind.events}


@dataclass(frozen=True, slots=True)
class StreamSize:
    """One line of ``stream list --sizes``; the segments and bytes between head and tail.

    What was not asked for, or is not known, is None: the events, about, and the bytes that come in a second.
    """

    scope: str
    stream: str
    segments: int
    size_bytes: int
    events: int | None = None
    bytes_per_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"scope": self.scope, "stream": self.stream}
        made |= {"segments": self.segments, "bytes": self.size_bytes}
        asked = {"events": self.events, "bytes_per_s": self.bytes_per_s}
        return made | {name: value for name, value in asked.items() if value is not None}


def amount_between(
    gateway: StreamGateway, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets
) -> Amount:
    """Count between two cuts. Events are estimated within the stretches of the index, some 64 KiB, at both ends."""
    from pravega_spark.source.stream_positions import StreamPositions

    positions = StreamPositions(gateway, scope, stream, fail_on_data_loss=False)
    spans = {span.segment_id: (span.start, span.end) for span in positions.spans(start, end)}
    return Amount(sum(last - first for first, last in spans.values()), positions.events_within(spans))


def query_lag(gateway: StreamGateway, scope: str, stream: str, checkpoint: str, tail: SegmentOffsets) -> QueryLag:
    """Counts from the last finished batch of a query to the tail."""
    from pravega_spark.source.checkpoint import committed_position

    committed = committed_position(checkpoint)
    start = committed.of(f"{scope}/{stream}")
    return QueryLag(committed.batch_id, amount_between(gateway, scope, stream, start, tail))


def written_per_s(
    client: StreamClient, scope: str, stream: str, segment_ids: Sequence[int], sleep: Callable[[float], None]
) -> dict[int, float]:
    """Bytes a second that come into segments, watched for ``rate_time_s``."""
    before = client.segment_infos(scope, stream, segment_ids)
    sleep(rate_time_s)
    after = client.segment_infos(scope, stream, segment_ids)
    return {item: (after[item].length - before[item].length) / rate_time_s for item in sorted(set(before) & set(after))}


def written_per_s_of_each(
    client: StreamClient, streams: Sequence[tuple[str, str]], sleep: Callable[[float], None]
) -> dict[tuple[str, str], float]:
    """Bytes a second that come into streams, all watched for the same ``rate_time_s``.

    Without those that are deleted meanwhile.
    """
    before = {one: length for one in streams if (length := _open_length(client, *one)) is not None}
    sleep(rate_time_s)
    found = {}
    for one, first in before.items():
        now = _open_length(client, *one)
        if now is not None:
            grown = sum(max(0, length - first.get(item, 0)) for item, length in now.items())
            found[one] = grown / rate_time_s
    return found


def _open_length(client: StreamClient, scope: str, stream: str) -> dict[int, int] | None:
    """The lengths of the open segments of a stream; one that a scaling made since begins with 0."""
    try:
        ids = [item.segment_id for item in client.controller.current_segments(scope, stream)]
    except StreamNotFound:
        return None
    return {item: info.length for item, info in client.segment_infos(scope, stream, ids).items()}


def stream_size(client: StreamClient, scope: str, stream: str) -> StreamSize | None:
    """None for a stream that was deleted since it was listed."""
    controller = client.controller
    try:
        ids = controller.segments_between(scope, stream, client.head_cut(scope, stream), client.tail_cut(scope, stream))
    except StreamNotFound:
        return None
    found = client.segment_infos(scope, stream, ids)
    return StreamSize(scope, stream, len(ids), sum(info.length - info.start_offset for info in found.values()))
