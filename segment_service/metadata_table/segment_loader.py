"""Brings segments that are not in memory back from the metadata table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from pravega_common.errors import ContainerOffline, DataCorruption, PravegaError, Throttled, Unavailable
from pravega_common.names import INDEX_SUFFIX, index_segment_name, is_index_segment, is_user_stream_segment
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.sorted_map import SortedMap
from segment_service.metadata.boundary_tracker import last_record
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.index_segments import index_of
from segment_service.metadata.segment_record import read_record
from segment_service.metadata_table.metadata_table import name_key

look_ups_max: Final = 10_000
"""Names that are looked up, or wait for it."""
look_ups_at_once_max: Final = 64
"""Look-ups that ask Tier 2 at the same time; others wait for their turn."""
look_up_attempts_max: Final = 10
"""How often one look-up asks while flushes change the table."""
absent_names_max: Final = 10_000
"""Names that are remembered as being in the table under no id; the oldest is forgotten first."""
partners_per_look_up: Final = 500
"""Names of one look-up after a recovery."""
damaged_look_ups_max: Final = 64
"""Look-ups after a recovery that may meet damage to find out what exactly is damaged; what they leave open is looked up
again behind the start."""


class SegmentLoader(Service):
    """``InactiveSegments`` over the metadata table. A segment of a user's stream and its event index come together, and
    leave memory together (``eviction.py``): in memory, a segment without an index has none, unless its index could not
    be read (``ContainerMetadata.unread_pairs``)."""

    def __init__(self, metadata: ContainerMetadata, table: SortedMap, clock: Clock) -> None:
        super().__init__(f"segment-loader-{metadata.container_id}")
        self.on_loaded: Callable[[SegmentMetadata], None] = lambda segment: None
        """Called for each segment that came back."""
        self.loaded_total = 0
        self._metadata = metadata
        self._table = table
        self._clock = clock
        self._looking: dict[str, asyncio.Task[PravegaError | None]] = {}
        self._turns = asyncio.Semaphore(look_ups_at_once_max)
        self._absent: dict[str, None] = {}

    def may_have(self, name: str) -> bool:
        return not (
            name in self._absent or self._metadata.changes.is_gone(name) or self._table.is_surely_absent(name_key(name))
        )

    def bring(self, name: str, then: Callable[[PravegaError | None], None]) -> None:
        def done(task: asyncio.Task[PravegaError | None]) -> None:
            is_over = task.cancelled() or task.exception() is not None
            then(ContainerOffline(f"{self.name} has stopped") if is_over else task.result())

        root = root_of(name)
        task = self._looking.get(root)
        refusal = None if task is not None else self._refusal()
        if refusal is not None:
            asyncio.get_running_loop().call_soon(then, refusal)
        else:
            (task or self._begin(root)).add_done_callback(done)

    def _refusal(self) -> PravegaError | None:
        """The reason why nothing more can be looked up now."""
        if not self.is_running:
            return ContainerOffline(f"{self.name} is not running")
        if len(self._looking) >= look_ups_max:
            return Throttled(f"{len(self._looking)} segments are looked up in Tier 2, which is the limit")
        return None

    async def find(self, name: str) -> SegmentMetadata | None:
        """The live segment of this name, brought back if need be; ``None`` without one."""
        while (found := self._metadata.by_name(name)) is None and self.may_have(name):
            error = await self.look_up(name)
            if error is not None:
                raise error
        return found

    async def look_up(self, name: str) -> PravegaError | None:
        """As ``bring``; returns the error."""
        answered: asyncio.Future[PravegaError | None] = asyncio.get_running_loop().create_future()

        def answer(error: PravegaError | None) -> None:
            if not answered.done():
                answered.set_result(error)

        self.bring(name, answer)
        return await answered

    def left(self, name: str) -> None:
        """The segment leaves memory: from now on it is in the table only."""
        self._absent.pop(name, None)

    async def complete_pairs(self) -> None:
        """After a recovery: bring the event indexes of the segments in memory, and the segments of the indexes. What is
        damaged is left out: it is the error of those that need it, and no reason to stop all others."""
        names = list(self._metadata.ids)
        partners = [partner for name in names if (partner := _partner_of(name)) is not None]
        missing = [name for name in partners if name not in self._metadata.ids and self.may_have(name)]
        size = partners_per_look_up
        parts = [missing[first : first + size] for first in range(0, len(missing), size)]
        damaged = 0
        while parts:
            names = parts.pop()
            try:
                found = await self._look_up(names)
            except DataCorruption as error:
                damaged += 1
                if len(names) == 1 or damaged > damaged_look_ups_max:
                    self._not_read(map(root_of, names), error)
                else:
                    parts += [names[: len(names) // 2], names[len(names) // 2 :]]
            else:
                self._insert(found)
                self._are_read(map(root_of, names))

    def _not_read(self, roots: Iterable[str], error: DataCorruption) -> None:
        metadata = self._metadata
        for root in roots:
            if root in metadata.ids or index_segment_name(root) in metadata.ids:
                if root not in metadata.unread_pairs:
                    self.log.error("a segment and its event index are not read", segment=root, error=str(error))
                metadata.unread_pairs[root] = str(error)

    def _are_read(self, roots: Iterable[str]) -> None:
        for root in roots:
            if self._metadata.unread_pairs.pop(root, None) is not None:
                self.log.info("a segment and its event index are read again", segment=root)

    def _begin(self, root: str) -> asyncio.Task[PravegaError | None]:
        task: asyncio.Task[PravegaError | None] = self.spawn(self._load(root), f"look-up-{root}")
        self._looking[root] = task
        return task

    async def _load(self, root: str) -> PravegaError | None:
        names = [root, index_segment_name(root)] if is_user_stream_segment(root) else [root]
        try:
            async with self._turns:
                segments = await self._look_up(names)
            self._insert(segments)
        except PravegaError as error:
            if isinstance(error, DataCorruption):
                self._not_read((root,), error)
            return error
        finally:
            del self._looking[root]
        self._are_read((root,))
        self._learn_boundaries(root)
        return None

    async def _look_up(self, names: list[str]) -> list[SegmentMetadata]:
        """Ask the table for these names, and again if a flush changed it meanwhile: what was found may be gone since,
        and what was not there may have come, and have left memory."""
        for _ in range(look_up_attempts_max):
            flushes = self._metadata.changes.flushes
            found = await self._table.get_many([name_key(name) for name in names])
            if flushes == self._metadata.changes.flushes:
                return self._read(names, found)
        raise Unavailable(f"the metadata table was changed {look_up_attempts_max} times while {names[0]} was looked up")

    def _read(self, names: list[str], found: dict[bytes, bytes]) -> list[SegmentMetadata]:
        for name in names:
            if name_key(name) not in found:
                self._absent[name] = None
                if len(self._absent) > absent_names_max:
                    del self._absent[next(iter(self._absent))]
        return [read_record(value) for value in found.values()]

    def _insert(self, segments: Iterable[SegmentMetadata]) -> None:
        metadata = self._metadata
        for segment in segments:
            if segment.name in metadata.ids or metadata.changes.is_gone(segment.name):
                continue
            if (
                segment.storage_length != segment.length
                or segment.segment_id in metadata.segments
                or segment.segment_id >= metadata.next_segment_id
            ):
                raise DataCorruption(
                    f"the metadata table has {segment.name} as {segment}, of which the log of container "
                    f"{metadata.container_id} knows nothing"
                )
            segment.in_table, segment.is_logged = True, False
            segment.recovered_length = segment.length
            segment.is_sealed_in_storage = segment.is_sealed
            segment.used_s = self._clock.monotonic_s()
            metadata.segments[segment.segment_id] = segment
            metadata.ids[segment.name] = segment.segment_id
            self.loaded_total += 1
            self.on_loaded(segment)

    def _learn_boundaries(self, root: str) -> None:
        segment = self._metadata.by_name(root)
        if segment is None or not is_user_stream_segment(root):
            return
        index = index_of(self._metadata, segment)
        boundaries = self._metadata.boundaries
        boundaries.written(segment, 0 if index is None else last_record(index).length)
        if boundaries.is_waiting(segment.segment_id):
            boundaries.on_growth()


def root_of(name: str) -> str:
    """The segment that an event index is about; every other segment is its own."""
    owner = name.removesuffix(INDEX_SUFFIX)
    return owner if is_index_segment(name) and is_user_stream_segment(owner) else name


def _partner_of(name: str) -> str | None:
    """The segment that comes and goes with this one."""
    root = root_of(name)
    if root != name:
        return root
    return index_segment_name(name) if is_user_stream_segment(name) else None
