"""Holds the metadata of a container that a test changes by the operations of its log."""

from __future__ import annotations

from pravega_common.model.auto_scale_event import AutoScaleEvent
from pravega_common.model.scaling import ScaleType
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    SCALE_POLICY_RATE,
    SCALE_POLICY_TYPE,
    AttributeId,
)
from segment_service.contracts.operations import Append, Delete, MapSegment, Merge, Seal, UpdateAttributes
from segment_service.durable_log.metadata_commit import commit_operation
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.traffic.settings import TrafficSettings
from segment_service.traffic.watch import ContainerTraffic, TrafficReport

NAME = "scope/stream/0.#epoch.0"
WALL_MS = 1_700_000_000_000
TICK_S = 5.0


def policy(rate: int = 100, scale_type: int = ScaleType.EVENTS_PER_SECOND, **others: int) -> dict[AttributeId, int]:
    created = {CREATION_TIME: others["created_ms"]} if "created_ms" in others else {}
    return {SCALE_POLICY_TYPE: int(scale_type), SCALE_POLICY_RATE: rate, **created}


class TrafficWorld:
    """One container, and the watch of its segments on a clock of the test's own."""

    def __init__(self, container_id: int = 0, settings: TrafficSettings | None = None) -> None:
        self.container_id = container_id
        self.metadata = ContainerMetadata(container_id)
        self.settings = settings or TrafficSettings()
        self.now_s = 1_000.0
        self.ids = iter(range(1, 1_000_000))
        self.traffic: ContainerTraffic | None = None

    def watch(self) -> ContainerTraffic:
        self.traffic = ContainerTraffic(self.metadata, self.settings, self.now_s, lambda: next(self.ids))
        return self.traffic

    def create(self, name: str = NAME, attributes: dict[AttributeId, int] | None = None) -> int:
        segment_id = self.metadata.next_segment_id
        found = policy() if attributes is None else attributes
        commit_operation(
            self.metadata,
            MapSegment(sequence_number=1, segment_id=segment_id, name=name, created_ms=0, attributes=found),
        )
        return segment_id

    def append(self, segment_id: int, events: int, length: int = 1_000) -> None:
        segment = self.metadata.segments[segment_id]
        count = segment.attributes.get(EVENT_COUNT, 0) + events
        commit_operation(
            self.metadata,
            Append(
                sequence_number=1,
                segment_id=segment_id,
                offset=segment.length,
                length=length,
                data=None,
                values=((EVENT_COUNT, count),),
            ),
        )

    def index_written(self, segment_id: int) -> None:
        """The event index caught up, so that the next growth is noted again."""
        segment = self.metadata.segments[segment_id]
        self.metadata.boundaries.written(segment, segment.length)

    def merge(self, target_id: int, events: int, length: int, life_ms: int) -> None:
        """A transaction with all of this, created ``life_ms`` before its merge."""
        name = f"{self.metadata.segments[target_id].name}#transaction.{next(self.ids):032x}"
        source_id = self.create(name, {CREATION_TIME: WALL_MS - life_ms})
        self.append(source_id, events, length)
        commit_operation(self.metadata, Seal(sequence_number=1, segment_id=source_id, offset=length))
        commit_operation(
            self.metadata,
            Merge(
                sequence_number=1,
                segment_id=target_id,
                source_id=source_id,
                offset=self.metadata.segments[target_id].length,
                length=length,
                time_ms=WALL_MS,
            ),
        )

    def update(self, segment_id: int, values: dict[AttributeId, int]) -> None:
        commit_operation(
            self.metadata,
            UpdateAttributes(sequence_number=1, segment_id=segment_id, values=tuple(values.items())),
        )

    def seal(self, segment_id: int) -> None:
        length = self.metadata.segments[segment_id].length
        commit_operation(self.metadata, Seal(sequence_number=1, segment_id=segment_id, offset=length))

    def delete(self, segment_id: int) -> None:
        commit_operation(self.metadata, Delete(sequence_number=1, segment_id=segment_id))

    def leave_memory(self, segment_id: int) -> None:
        segment = self.metadata.segments.pop(segment_id)
        del self.metadata.ids[segment.name]

    def tick(self, *, written: bool = True) -> list[AutoScaleEvent]:
        """One tick later: the reports, which are written if nothing else is said."""
        assert self.traffic is not None
        self.now_s += TICK_S
        wall_ms = WALL_MS + int(self.now_s * 1000)
        looked = (self.traffic.look(segment_id, wall_ms) for segment_id in self.traffic.begin_tick(self.now_s))
        reports = [report for report in looked if report is not None]
        return self.told(reports) if written else [report.event for report in reports]

    @staticmethod
    def told(reports: list[TrafficReport]) -> list[AutoScaleEvent]:
        for report in reports:
            report.written()
        return [report.event for report in reports]

    def run(self, segment_id: int, rate: float, seconds: float, **values: int) -> list[AutoScaleEvent]:
        """Append at a rate of events a second, and collect what is reported."""
        events = []
        for _ in range(int(seconds / TICK_S)):
            if rate:
                self.append(segment_id, int(rate * TICK_S), **values)
            events += self.tick()
        return events
