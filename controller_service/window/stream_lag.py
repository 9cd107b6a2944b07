"""Tells how far those who read one stream are behind its tail."""

from __future__ import annotations

from typing import Final

from controller_service.lag.distance import Distances, epochs_max
from controller_service.lag.subscriber_lag import SubscriberLag, lag_problems, subscriber_lags
from controller_service.store.records import SUBSCRIBERS, TRUNCATION, SubscribersRecord
from controller_service.window.answers import FoundProblem, StreamLag, Subscriber, WatermarkView
from controller_service.window.looks import segments_of
from controller_service.window.parts import WindowParts, look_time_max_s, within
from pravega_common.errors import NotFound, PravegaError

subscribers_max: Final = 20
"""Subscribers of one answer, those first that told no position for the longest time."""


async def lag_of(parts: WindowParts, scope: str, stream: str, subscriber: str = "") -> StreamLag:
    """The lag of the stream's subscribers, or of the one that is named; ``StreamNotFound``, ``NotFound``."""
    context = await parts.store.open(scope, stream, SUBSCRIBERS, TRUNCATION)
    known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
    if subscriber and subscriber not in known:
        raise NotFound(f"{scope}/{stream} has no subscriber {subscriber!r}")
    wanted = [known[subscriber]] if subscriber else sorted(known.values(), key=lambda one: one.updated_ms)
    seen = await segments_of(parts, scope, stream, await context.current_epoch())
    tail = None if seen.unknown else {key: info.length for key, info in seen.infos.items()}
    distances = Distances(context, tail)
    lags = await subscriber_lags(context, distances, wanted[:subscribers_max])
    unknown = [seen.unknown] if seen.unknown else []
    if distances.was_too_long:
        unknown.append(f"Distances are added up over {epochs_max} epochs at most: a subscriber is further behind.")
    watermark = None
    try:
        watermark = await _watermark(parts, scope, stream)
    except PravegaError as error:
        unknown.append(f"The watermark is not known now: {error}.")
    now_ms = parts.clock.wall_ms()
    return StreamLag(
        scope=scope,
        stream=stream,
        at_ms=now_ms,
        subscribers=[_shown(one) for one in lags],
        left_out=len(wanted) - len(lags),
        watermark=watermark,
        problems=[FoundProblem(**problem.to_json()) for problem in lag_problems(lags, now_ms)],
        unknown=unknown,
    )


async def _watermark(parts: WindowParts, scope: str, stream: str) -> WatermarkView | None:
    if parts.newest_watermark is None:
        return None
    found = await within(look_time_max_s, parts.newest_watermark(scope, stream))
    if found is None:
        return None
    return WatermarkView(lower_time=found.lower_time, upper_time=found.upper_time, written_ms=found.written_ms)


def _shown(lag: SubscriberLag) -> Subscriber:
    return Subscriber(
        name=lag.name, updated_ms=lag.updated_ms or None, behind_bytes=lag.behind_bytes, unknown=lag.unknown
    )
