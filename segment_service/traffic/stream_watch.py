"""Watches the traffic of the streams of a store: once a tick, what grew and what was read since the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pravega_common.names import is_user_stream_segment
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.services.base import Service
from segment_service.host.read_notes import ReadNotes
from segment_service.metadata.growth_notes import GrowthNotes
from segment_service.traffic.busiest_streams import BusiestStreams, StreamTraffic
from segment_service.traffic.monitor import Watchable

tick_s: Final = 5.0
follow_s: Final = 0.5
"""Containers that came are watched after this long: their traffic until then is not counted."""
segments_per_reading: Final = 100
"""Segments between two looks at the clock: together far less than a slice of the loop."""


class StreamWatch(Service):
    """Appends and reads leave notes; a tick makes the counts of streams of them. With no room for a stream it is off,
    and nothing is noted."""

    def __init__(
        self, containers: Callable[[], Iterable[Watchable]], reads: ReadNotes, clock: Clock, streams_max: int
    ) -> None:
        super().__init__("stream-watch")
        self.streams = BusiestStreams(streams_max)
        self._is_enabled = streams_max > 0
        self._containers = containers
        self._reads = reads
        self._clock = clock
        self._growth: dict[int, GrowthNotes] = {}

    async def on_start(self) -> None:
        if self._is_enabled:
            self._follow_containers()
            self._reads.is_on = True
            self.spawn(self._run(), "tick")
            self.spawn(self._follow(), "follow")

    async def on_stop(self) -> None:
        self._reads.stop()
        for notes in self._growth.values():
            notes.stop()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(tick_s)
            await self.tick()

    async def _follow(self) -> None:
        while True:
            await self._clock.sleep(follow_s)
            self._follow_containers()

    async def tick(self) -> None:
        """Count what came since the last tick; the loop serves others in between."""
        slices = TimeSlices(self._clock, segments_per_reading)
        came: dict[str, StreamTraffic] = {}
        for notes in list(self._growth.values()):
            for segment_id in notes.noted():
                growth = notes.take(segment_id)
                if growth is not None:
                    found = _of_segment(came, growth.segment)
                    found.in_bytes += growth.bytes
                    found.in_events += growth.events
                await slices.step()
        for segment, length in self._reads.take().items():
            if is_user_stream_segment(segment):
                _of_segment(came, segment).out_bytes += length
            elif not segment:
                self.streams.add_unnamed(StreamTraffic(out_bytes=length))
            await slices.step()
        self.streams.tick(came, self._clock.monotonic_s())

    def _follow_containers(self) -> None:
        """Note the growth of the containers that run here. One that came back is another object."""
        growth = {container.container_id: container.metadata.growth for container in self._containers()}
        for container_id, notes in list(self._growth.items()):
            if growth.get(container_id) is not notes:
                notes.stop()
                del self._growth[container_id]
        for container_id, notes in growth.items():
            notes.is_on = True
            self._growth[container_id] = notes


def _of_segment(came: dict[str, StreamTraffic], segment: str) -> StreamTraffic:
    """The counts of the stream that a segment of a user's stream belongs to."""
    return came.setdefault(segment.rpartition("/")[0], StreamTraffic())
