"""Tells how far the subscribers of one stream are behind its tail, and which of them need somebody's care."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.errors import CutTruncated
from controller_service.lag.distance import Distances
from controller_service.store.history import place_in
from controller_service.store.records import SubscriberRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut, is_at_or_after
from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import InvalidArgument
from pravega_common.services.problems import Problem

stalled_max_s: Final = 3_600
"""A subscriber that has something to read and told no position for so long is a problem."""


@dataclass(frozen=True, slots=True)
class SubscriberLag:
    """A subscriber's last position; ``unknown`` says why its distance is not known."""

    name: str
    """``scope/name``: of a reader group, or of a query's option ``subscriber``."""
    updated_ms: int
    """When it told its position; 0 for one that has not yet."""
    behind_bytes: int | None = None
    was_truncated: bool = False
    """Whether its position lies before the head: something that it has still to read is gone."""
    unknown: str | None = None

    def stalled_s(self, now_ms: int) -> float:
        """The time since it told its position, if there is something behind that; else 0."""
        return max(0, now_ms - self.updated_ms) / 1000 if self.behind_bytes and self.updated_ms else 0.0


async def subscriber_lags(
    context: StreamContext, distances: Distances, records: Sequence[SubscriberRecord]
) -> list[SubscriberLag]:
    """The lags of some subscribers of a stream; raises what reading the stream's records raises."""
    head_cut = (await context.truncation()).cut
    head = await place_in(context, head_cut) if head_cut else None
    return [await _lag_of(context, distances, head, record) for record in records]


async def _lag_of(
    context: StreamContext, distances: Distances, head: PlacedCut | None, record: SubscriberRecord
) -> SubscriberLag:
    name, updated_ms = record.subscriber, record.updated_ms
    if not record.cut:
        return SubscriberLag(name, updated_ms, unknown="it has not told a position yet")
    try:
        behind = await distances.behind(record.cut)
        was_truncated = head is not None and not is_at_or_after(await place_in(context, record.cut), head)
    except CutTruncated:
        return SubscriberLag(name, updated_ms, was_truncated=True, unknown="its position lies before the head")
    except InvalidArgument:
        return SubscriberLag(name, updated_ms, unknown="its position is not of this stream")
    return SubscriberLag(name, updated_ms, behind, was_truncated, None if behind is not None else "not known now")


def lag_problems(lags: Iterable[SubscriberLag], now_ms: int) -> list[Problem]:
    """The subscribers that somebody has to look after."""
    problems = []
    for lag in lags:
        stalled_s = lag.stalled_s(now_ms)
        if lag.was_truncated:
            text = f"what subscriber {lag.name} has still to read was truncated"
            remedy = (
                "start its query with fail_on_data_loss=false or from another position, and let retention keep more, "
                f"or give it up: pravega-spark subscriber remove {lag.name}"
            )
            problems.append(Problem("subscriber-truncated", text, remedy, stops_work=False))
        elif stalled_s > stalled_max_s:
            behind = f"{text_of_bytes(lag.behind_bytes or 0)} behind"
            text = f"subscriber {lag.name} is {behind} and told no position for {_hours(stalled_s)}"
            remedy = (
                "look whether its query or readers run; if it is gone for good, it holds retention back until "
                f"pravega-spark subscriber remove {lag.name}"
            )
            problems.append(Problem("subscriber-stalled", text, remedy, stops_work=False))
    return problems


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
