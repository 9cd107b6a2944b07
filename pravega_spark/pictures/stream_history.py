"""Reads the segments of a stream and the epochs that had them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pravega_common.errors import RejectedError
from pravega_common.model.segments import SegmentInfo, SegmentRange
from pravega_common.names import segment_epoch, short_segment_name
from pravega_spark.gateway.contract import StreamGateway

epochs_max: Final = 60
"""Epochs of one picture, the newest ones; each costs a call of the controller."""

Fate = Literal["open", "sealed", "truncated"]


@dataclass(frozen=True, slots=True)
class DrawnSegment:
    """A segment in a picture: its keys in [0, 1), and the first and the last drawn epoch that had it."""

    name: str
    key_low: float
    key_high: float
    first_epoch: int
    last_epoch: int
    fate: Fate
    held_bytes: int | None
    """What can be read of it; None where its store does not know it any more."""


@dataclass(frozen=True, slots=True)
class StreamHistory:
    """The segments of consecutive epochs."""

    scope: str
    stream: str
    first_epoch: int
    last_epoch: int
    has_older: bool
    """Whether the stream has data in epochs before ``first_epoch``."""
    segments: Sequence[DrawnSegment]


def read_history(gateway: StreamGateway, scope: str, stream: str) -> StreamHistory:
    """Read the newest epochs in which data can be read.

    At a cost of a call for each of at most ``epochs_max`` epochs, and a few calls a store.
    """
    tail, head = gateway.tail_cut(scope, stream), gateway.head_cut(scope, stream)
    last = max(map(segment_epoch, tail))
    oldest = min(map(segment_epoch, head), default=last)
    epochs = _epochs(gateway, scope, stream, max(oldest, last - epochs_max + 1), last)
    first = min(epochs)
    open_ids = {item.segment_id for item in gateway.current_segments(scope, stream)}
    ids = {item.segment_id for segments in epochs.values() for item in segments}
    infos = gateway.segment_infos(scope, stream, sorted(ids))
    drawn = [_drawn(item, epochs, infos.get(item), item in open_ids) for item in sorted(ids)]
    return StreamHistory(scope, stream, first, last, first > oldest, drawn)


def _epochs(gateway: StreamGateway, scope: str, stream: str, first: int, last: int) -> dict[int, list[SegmentRange]]:
    """The segments of each epoch, from the newest to the oldest that the controller has on record."""
    epochs = {last: gateway.epoch_segments(scope, stream, last)}
    for epoch in range(last - 1, first - 1, -1):
        try:
            epochs[epoch] = gateway.epoch_segments(scope, stream, epoch)
        except RejectedError:
            break  # records of truncated epochs end
    return epochs


def _drawn(
    segment_id: int, epochs: Mapping[int, Sequence[SegmentRange]], info: SegmentInfo | None, is_open: bool
) -> DrawnSegment:
    having = {epoch: item for epoch, items in epochs.items() for item in items if item.segment_id == segment_id}
    keys = next(iter(having.values())).key_range
    held = None if info is None else info.length - info.start_offset
    is_gone = info is None or (held == 0 and info.length > 0)
    fate: Fate = "open" if is_open else "truncated" if is_gone else "sealed"
    return DrawnSegment(short_segment_name(segment_id), keys.low, keys.high, min(having), max(having), fate, held)
