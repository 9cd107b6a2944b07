"""Lets segments that nobody uses leave memory, without a write: the metadata table has them as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.names import index_segment_name, is_transient_segment, is_user_stream_segment
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.services.base import Service
from segment_service.contracts.read_index import ReadIndex
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.table_changes import Taken
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.metadata_table.segment_loader import SegmentLoader, root_of

looks_max: Final = 10_000
"""Segments looked at in one round."""

transient_life_s: Final = 3_600.0
"""Seconds without use after which a transient segment is deleted. The connection that made it does so when it ends;
after a crash of the store nobody does."""

EVICTED: Final = register("metadata_table.evicted")


class Evictor(Service):
    """Looks at segments after their flush to the table and after their return from it, once their time has come.

    A segment leaves if nothing was noted of it since, everything of it is in Tier 2 and acknowledged to the log,
    nothing is staged, nobody reads, waits or holds on to it, it is not quarantined, and its other half could be read
    (alone it could not come back). Any operation on it notes it, or makes it longer than it is in Tier 2.
    A transient segment stays, unless there are too many, and is deleted when nobody used it for ``transient_life_s``.
    """

    def __init__(
        self,
        metadata: ContainerMetadata,
        loader: SegmentLoader,
        read_index: ReadIndex,
        acknowledged: Callable[[], int],
        is_staged: Callable[[int], bool],
        delete: Callable[[str], Awaitable[None]],
        clock: Clock,
        config: MetadataTableConfig,
    ) -> None:
        super().__init__(f"segment-evictor-{metadata.container_id}")
        self.evicted_total = 0
        self._metadata = metadata
        self._loader = loader
        self._read_index = read_index
        self._acknowledged = acknowledged
        self._is_staged = is_staged
        self._delete = delete
        self._clock = clock
        self._config = config
        self._candidates: dict[int, tuple[float, int]] = {}
        """By id: since when the segment is thought to be idle, and the operation that must be acknowledged. About in
        the order of times."""
        self._unused_since_s: dict[int, float] = {}
        """By id: since when a transient segment in memory is idle, as far as it was looked at."""

    async def on_start(self) -> None:
        self.spawn(self._run(), "evict")

    def flushed(self, taken: Taken, high_water: int) -> None:
        """The table has these changes; operations up to the high water may be on their way to Tier 2."""
        now_s = self._clock.monotonic_s()
        for segment_id in taken.changed:
            self._put_last(segment_id, now_s, high_water)

    def loaded(self, segment: SegmentMetadata) -> None:
        """The segment came back."""
        self._put_last(segment.segment_id, segment.used_s, 0)

    def _put_last(self, segment_id: int, since_s: float, high_water: int) -> None:
        self._candidates.pop(segment_id, None)
        self._candidates[segment_id] = (since_s, high_water)

    async def evict_idle(self) -> None:
        """One round over those whose time has come, or that are too many."""
        slices = TimeSlices(self._clock)
        now_s = self._clock.monotonic_s()
        for _ in range(min(len(self._candidates), looks_max)):
            if not self._candidates:
                return
            segment_id = next(iter(self._candidates))
            since_s, high_water = self._candidates[segment_id]
            is_many = len(self._metadata.segments) > self._config.active_max
            if since_s + self._config.idle_s > now_s and not is_many:
                return
            del self._candidates[segment_id]
            self._consider(segment_id, since_s, high_water, now_s, is_many=is_many)
            await slices.step()

    def _consider(self, segment_id: int, since_s: float, high_water: int, now_s: float, *, is_many: bool) -> None:
        segment = self._metadata.segments.get(segment_id)
        if segment is None or not self._is_in_table(segment):
            self._unused_since_s.pop(segment_id, None)
            return  # it is gone, or its next flush brings it here again
        if segment.used_s > since_s and not is_many:
            self._put_last(segment_id, segment.used_s, high_water)
            return
        pair = self._pair_of(segment)
        if self._acknowledged() < high_water or not all(map(self._is_idle, pair)):
            self._put_last(segment_id, now_s, high_water)
            return
        if is_transient_segment(segment.name) and not is_many:
            if self._is_abandoned(segment, now_s):
                self.spawn(self._delete_abandoned(segment.name), "delete-transient")
            self._put_last(segment_id, now_s, high_water)
            return
        for one in pair:
            self._evict(one)

    def _is_abandoned(self, segment: SegmentMetadata, now_s: float) -> bool:
        since_s = max(self._unused_since_s.get(segment.segment_id, now_s), segment.used_s)
        self._unused_since_s[segment.segment_id] = since_s
        return now_s - since_s >= transient_life_s

    async def _delete_abandoned(self, name: str) -> None:
        try:
            await self._delete(name)
        except PravegaError as error:  # it is looked at again
            self.log.info("a transient segment that nobody uses stays for now", segment=name, error=str(error))

    def _is_in_table(self, segment: SegmentMetadata) -> bool:
        return (
            self._metadata.changes.is_clean(segment.segment_id)
            and segment.storage_length == segment.length
            and self._metadata.ids.get(segment.name) == segment.segment_id
        )

    def _pair_of(self, segment: SegmentMetadata) -> list[SegmentMetadata]:
        """A segment of a user's stream and its event index, as far as they are in memory."""
        root = root_of(segment.name)
        names = [root, index_segment_name(root)] if is_user_stream_segment(root) else [root]
        return [found for name in names if (found := self._metadata.by_name(name)) is not None]

    def _is_idle(self, segment: SegmentMetadata) -> bool:
        segment_id = segment.segment_id
        return (
            self._is_in_table(segment)
            and not segment.users
            and not self._is_staged(segment_id)
            and not self._read_index.is_in_use(segment_id)
            and not self._metadata.boundaries.is_waiting(segment_id)
            and self._metadata.quarantine.reason(segment_id) is None
            and root_of(segment.name) not in self._metadata.unread_pairs
            and not self._waits_for_tier2(segment_id)
        )

    def _waits_for_tier2(self, segment_id: int) -> bool:
        """Whether its candidacy says that not all its operations were acknowledged."""
        _, high_water = self._candidates.get(segment_id, (0.0, 0))
        return self._acknowledged() < high_water

    def _evict(self, segment: SegmentMetadata) -> None:
        self._read_index.unload(segment.segment_id)
        self._metadata.held.gone(segment.segment_id)
        self._loader.left(segment.name)
        self._candidates.pop(segment.segment_id, None)
        self._unused_since_s.pop(segment.segment_id, None)
        del self._metadata.segments[segment.segment_id]
        del self._metadata.ids[segment.name]
        self.evicted_total += 1
        failpoint(EVICTED)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._config.look_s)
            await self.evict_idle()
