"""Runs the watch of traffic of a store: one tick over all containers, and the writing of what is to be reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.services.base import Service
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.traffic.request_stream import RequestStream
from segment_service.traffic.settings import TrafficSettings
from segment_service.traffic.watch import ContainerTraffic, TrafficReport

reports_waiting_max: Final = 10_000
"""Reports that wait to be written; those beyond are dropped, and made again at the next tick."""
reports_per_append_max: Final = 500
"""Reports of one append: at most 300 KB."""
append_time_max_s: Final = 10.0
"""The time of one append of reports, after which its outcome is unknown."""
warning_pause_s: Final = 60.0
"""While reports cannot be written, the log says so this often."""


class Watchable(Protocol):
    """A container, as the monitor sees it."""

    @property
    def container_id(self) -> int: ...

    @property
    def metadata(self) -> ContainerMetadata: ...


class TrafficMonitor(Service):
    """Reports are best effort: one that cannot be written is dropped and counted, and made again by the next tick for
    as long as its reason stands. A tick makes none while the ones before are being written."""

    def __init__(
        self,
        containers: Callable[[], Iterable[Watchable]],
        stream: RequestStream,
        settings: TrafficSettings,
        clock: Clock,
        random_id: Callable[[], int],
    ) -> None:
        super().__init__("traffic-monitor")
        self._containers = containers
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._random_id = random_id
        self._watches: dict[int, ContainerTraffic] = {}
        self._warned_s = float("-inf")
        self.written_total = 0
        self.dropped_total = 0

    @property
    def watched_segments(self) -> int:
        return sum(map(len, self._watches.values()))

    async def on_start(self) -> None:
        if self._settings.is_enabled:
            self.spawn(self._run(), "tick")

    async def on_stop(self) -> None:
        for watch in self._watches.values():
            watch.stop()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._settings.tick_s)
            await self.tick()

    async def tick(self) -> None:
        """Compute all rates, and write the reports that are due."""
        now_s, wall_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        self._follow_containers(now_s)
        reports = await self._due(now_s, wall_ms)
        self.dropped_total += max(len(reports) - reports_waiting_max, 0)
        for segment, due in _by_segment(reports[:reports_waiting_max]).items():
            for first in range(0, len(due), reports_per_append_max):
                await self._write(segment, due[first : first + reports_per_append_max])

    async def _due(self, now_s: float, wall_ms: int) -> list[TrafficReport]:
        """The reports of all containers; the loop serves others in between."""
        slices = TimeSlices(self._clock)
        reports = []
        for watch in list(self._watches.values()):
            for segment_id in watch.begin_tick(now_s):
                report = watch.look(segment_id, wall_ms)
                if report is not None:
                    reports.append(report)
                await slices.step()
        return reports

    def _follow_containers(self, now_s: float) -> None:
        """Watch the containers that run here. One that came back is another object, which watches from the start."""
        metadata = {container.container_id: container.metadata for container in self._containers()}
        for container_id, watch in list(self._watches.items()):
            if metadata.get(container_id) is not watch.metadata:
                watch.stop()
                del self._watches[container_id]
        for container_id, found in metadata.items():
            if container_id not in self._watches:
                self._watches[container_id] = ContainerTraffic(found, self._settings, now_s, self._random_id)

    async def _write(self, segment: str, reports: Sequence[TrafficReport]) -> None:
        try:
            async with asyncio.timeout(append_time_max_s):
                await self._stream.append(segment, [report.event for report in reports])
        except (PravegaError, TimeoutError) as error:
            self.dropped_total += len(reports)
            now_s = self._clock.monotonic_s()
            if now_s - self._warned_s >= warning_pause_s:
                self._warned_s = now_s
                self.log.warning("traffic reports were dropped", segment=segment, count=len(reports), error=repr(error))
            return
        self.written_total += len(reports)
        for report in reports:
            report.written()


def _by_segment(reports: Iterable[TrafficReport]) -> Mapping[str, list[TrafficReport]]:
    """The reports by the segment of the request stream that they go to."""
    found: dict[str, list[TrafficReport]] = {}
    for report in reports:
        found.setdefault(report.event.request_segment, []).append(report)
    return found
