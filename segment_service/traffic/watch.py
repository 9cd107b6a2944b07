"""Watches the segments of one container whose streams scale by their rate. A state machine without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pravega_common.errors import InvalidArgument
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection, splits_max
from pravega_common.model.scaling import ScaleType
from pravega_common.names import parse_segment_name
from segment_service.contracts.attributes import EVENT_COUNT, SCALE_POLICY_RATE, SCALE_POLICY_TYPE
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.traffic_notes import MergedTraffic, has_rate_policy
from segment_service.traffic.rates import TrafficRates
from segment_service.traffic.settings import TrafficSettings

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """A report to write, and the call to make once it is durable."""

    event: AutoScaleEvent
    written: Callable[[], None]


@dataclass(slots=True)
class _Watched:
    report: AutoScaleEvent
    """The form of its reports."""
    policy: tuple[int, int]
    """Scale type and target rate."""
    rates: TrafficRates
    events: int
    length: int
    grown_s: float
    """When it had traffic last, or was found."""
    merged_units: float = 0.0
    """Units that merges brought and that are not counted yet."""
    merged_span_s: float = 0.0
    """The time over which they are counted: the life of their transactions."""
    up_s: float = field(default=_NEVER)
    down_s: float = field(default=_NEVER)
    """When it was reported last, in each direction."""


class ContainerTraffic:
    """Reports the hot and cold segments of one container at every tick.

    The cost of a tick is that of the segments with a rate policy that had traffic of late, or came of late. What a
    segment took in is the difference of what it counts anyway, its length and its events. A merge brings the events
    of a transaction's whole life at once: they are counted over a time as long as that life.
    """

    def __init__(
        self, metadata: ContainerMetadata, settings: TrafficSettings, now_s: float, random_id: Callable[[], int]
    ) -> None:
        self.metadata = metadata
        self._settings = settings
        self._random_id = random_id
        self._watched: dict[int, _Watched] = {}
        self._ticked_s = now_s
        self._tick_s = 0.0
        """The length of the present tick."""
        metadata.traffic.is_on = True
        for segment in metadata.segments.values():
            # Those of the owner before, too: an idle segment is to be reported once, by one owner or the next.
            metadata.traffic.watch(segment)

    def __len__(self) -> int:
        return len(self._watched)

    def stop(self) -> None:
        """Note nothing any more."""
        self.metadata.traffic.is_on = False
        self.metadata.traffic.clear()

    def begin_tick(self, now_s: float) -> list[int]:
        """Begin a tick: the segments at which ``look`` is to be called, once each, with pauses if need be."""
        self._tick_s, self._ticked_s = now_s - self._ticked_s, now_s
        found = [segment_id for segment_id in self.metadata.traffic.noted() if segment_id not in self._watched]
        return [*self._watched, *found] if self._tick_s > 0 else found

    def look(self, segment_id: int, wall_ms: int) -> TrafficReport | None:
        """The segment's report, if one is due. One that is never written comes again at the next tick; one that is
        looked at for the first time is watched from now on."""
        merged = self.metadata.traffic.take(segment_id)
        watched = self._watched.get(segment_id)
        if watched is None:
            self._begin(segment_id, merged, self._ticked_s)
            return None
        segment = self.metadata.segments.get(segment_id)
        # A segment that nobody uses leaves memory; it is watched until it was idle for long enough to be reported.
        if segment is not None and not self._is_still_watched(watched, segment):
            del self._watched[segment_id]
            return None
        came = 0.0 if segment is None else self._appended(watched, segment, merged)
        if merged is not None:
            self._merged(watched, merged)
        if came or merged is not None:
            watched.grown_s = self._ticked_s
        watched.rates.add(came + self._merged_share(watched, self._tick_s), self._tick_s)
        return self._due(segment_id, watched, self._ticked_s, wall_ms)

    def _begin(self, segment_id: int, merged: MergedTraffic | None, now_s: float) -> None:
        segment = self.metadata.segments.get(segment_id)
        if segment is None or not _is_open(segment) or not has_rate_policy(segment):
            return
        try:
            name = parse_segment_name(segment.name)
            report = AutoScaleEvent(name.scope, name.stream, name.segment_id, ScaleDirection.DOWN, 0, 0, False, 0)
        except InvalidArgument:
            return  # A client may give a segment a name that no stream has.
        watched = _Watched(
            report,
            _policy_of(segment),
            TrafficRates(self._settings),
            _events_of(segment),
            segment.length,
            now_s,
        )
        self._watched[segment_id] = watched
        if merged is not None:
            self._merged(watched, merged)

    def _is_still_watched(self, watched: _Watched, segment: SegmentMetadata) -> bool:
        if not _is_open(segment) or not has_rate_policy(segment):
            return False
        policy = _policy_of(segment)
        if policy[0] != watched.policy[0]:
            watched.rates = TrafficRates(self._settings)  # another unit
            watched.merged_units = 0.0
        watched.policy = policy
        return True

    def _appended(self, watched: _Watched, segment: SegmentMetadata, merged: MergedTraffic | None) -> float:
        """The units that appends brought since the last look. Clients may set the count of events back."""
        events, length = _events_of(segment), segment.length
        merged_bytes = 0 if merged is None else merged.bytes
        came_bytes = max(length - watched.length - merged_bytes, 0)
        came_events = max(events - watched.events, 0)
        watched.events, watched.length = events, length
        return _units(watched.policy[0], came_bytes, came_events)

    def _merged(self, watched: _Watched, merged: MergedTraffic) -> None:
        units = _units(watched.policy[0], merged.bytes, merged.events)
        span_s = merged.byte_ms / 1000 / merged.bytes if merged.bytes else 0.0
        before = watched.merged_units
        if before + units > 0:
            watched.merged_span_s = (before * watched.merged_span_s + units * span_s) / (before + units)
        watched.merged_units += units

    @staticmethod
    def _merged_share(watched: _Watched, duration_s: float) -> float:
        share = watched.merged_units * min(1.0, duration_s / max(watched.merged_span_s, duration_s))
        watched.merged_units -= share
        return share

    def _due(self, segment_id: int, watched: _Watched, now_s: float, wall_ms: int) -> TrafficReport | None:
        target = float(watched.policy[1])
        mute_s = self._settings.mute_s
        splits = watched.rates.splits(target)
        if splits:
            if now_s - watched.up_s <= mute_s:
                return None
            return self._report(watched, ScaleDirection.UP, splits, wall_ms, partial(self._told_up, watched, now_s))
        if now_s - watched.grown_s > self._settings.idle_s:
            written = partial(self._told_silent, segment_id, watched, watched.grown_s)
            return self._report(watched, ScaleDirection.DOWN, 0, wall_ms, written, is_silent=True)
        if watched.rates.is_cold(target) and now_s - watched.down_s > mute_s:
            return self._report(watched, ScaleDirection.DOWN, 0, wall_ms, partial(self._told_down, watched, now_s))
        return None

    def _report(
        self,
        watched: _Watched,
        direction: ScaleDirection,
        splits: int,
        wall_ms: int,
        written: Callable[[], None],
        *,
        is_silent: bool = False,
    ) -> TrafficReport:
        event = replace(
            watched.report,
            direction=direction,
            timestamp_ms=wall_ms,
            splits=min(splits, splits_max),
            is_silent=is_silent,
            request_id=self._random_id(),
        )
        return TrafficReport(event, written)

    @staticmethod
    def _told_up(watched: _Watched, now_s: float) -> None:
        watched.up_s = watched.down_s = now_s

    @staticmethod
    def _told_down(watched: _Watched, now_s: float) -> None:
        watched.down_s = now_s

    def _told_silent(self, segment_id: int, watched: _Watched, grown_s: float) -> None:
        if watched.grown_s == grown_s and self._watched.get(segment_id) is watched:
            del self._watched[segment_id]


def _is_open(segment: SegmentMetadata) -> bool:
    return not (segment.is_sealed or segment.is_deleted or segment.is_merged)


def _policy_of(segment: SegmentMetadata) -> tuple[int, int]:
    return segment.attributes[SCALE_POLICY_TYPE], segment.attributes[SCALE_POLICY_RATE]


def _events_of(segment: SegmentMetadata) -> int:
    return segment.attributes.get(EVENT_COUNT, 0)


def _units(scale_type: int, length: int, events: int) -> float:
    """Events, or units of 1,024 bytes, as the policy counts."""
    return float(events) if scale_type == ScaleType.EVENTS_PER_SECOND else length / 1024
