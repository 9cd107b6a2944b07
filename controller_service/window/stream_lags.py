"""Tells how far those who read some streams are behind their tails: one answer for a page of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.lag.distance import Distances, Room, segments_read_max
from controller_service.lag.subscriber_lag import SubscriberLag, subscriber_lags
from controller_service.store.records import (
    SUBSCRIBERS,
    TRUNCATION,
    EpochRecord,
    SubscriberRecord,
    SubscribersRecord,
)
from controller_service.store.stream_context import StreamContext
from controller_service.window.looks import SegmentsSeen, segments_of_many
from controller_service.window.parts import WindowParts
from controller_service.window.stream_lag import subscribers_max
from pravega_common.errors import InvalidArgument, NotFound
from pravega_common.model.stream_lags import DescribedLag, DescribedSubscriber, streams_per_call_max
from pravega_common.runtime.joined import all_ended

segments_read_of_all_max: Final = 2 * segments_read_max
"""Segments of epochs that the distances of one answer read together."""


@dataclass(frozen=True, slots=True)
class _Subscribed:
    """A stream and its subscribers, those first that told no position for the longest time."""

    scope: str
    stream: str
    context: StreamContext
    epoch: EpochRecord
    records: Sequence[SubscriberRecord]


async def lags_of_many(parts: WindowParts, names: Sequence[tuple[str, str]]) -> list[DescribedLag]:
    """The lags of the subscribers of streams, by scope and name; those that are gone are left out.

    A stream without subscribers costs a read of its records alone. ``InvalidArgument`` for too many streams.
    """
    if len(names) > streams_per_call_max:
        raise InvalidArgument(f"{len(names)} streams; one call tells the lag of {streams_per_call_max} at most")
    distinct = dict.fromkeys(names)
    found = [one for one in await all_ended(_subscribed(parts, *name) for name in distinct) if one is not None]
    asked = [one for one in found if one.records]
    seen = await segments_of_many(parts, [(one.scope, one.stream, one.epoch) for one in asked])
    room = Room(segments_read_of_all_max)
    lags = {(one.scope, one.stream): await _lag(one, own, room) for one, own in zip(asked, seen, strict=True)}
    return [lags.get((one.scope, one.stream), DescribedLag(one.scope, one.stream)) for one in found]


async def _subscribed(parts: WindowParts, scope: str, stream: str) -> _Subscribed | None:
    try:
        context = await parts.store.open(scope, stream, SUBSCRIBERS, TRUNCATION)
        known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
        records = sorted(known.values(), key=lambda one: one.updated_ms)
        return _Subscribed(scope, stream, context, await context.current_epoch(), records)
    except NotFound:
        return None


async def _lag(one: _Subscribed, seen: SegmentsSeen, room: Room) -> DescribedLag:
    tail = None if seen.unknown else {key: info.length for key, info in seen.infos.items()}
    try:
        lags = await subscriber_lags(one.context, Distances(one.context, tail, room), one.records[:subscribers_max])
    except NotFound as error:
        return DescribedLag(one.scope, one.stream, left_out=len(one.records), unknown=str(error))
    shown = tuple(_described(lag) for lag in lags)
    return DescribedLag(one.scope, one.stream, shown, len(one.records) - len(shown), seen.unknown or "")


def _described(lag: SubscriberLag) -> DescribedSubscriber:
    return DescribedSubscriber(lag.name, lag.updated_ms, lag.behind_bytes, lag.was_truncated, lag.unknown or "")
