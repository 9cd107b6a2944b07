"""Keeps the metadata table of one container in Tier 2: every segment by name, as of its last flush.

Entries of the sorted map ``segments``::

    "n" name             the record of the segment (metadata/segment_record.py)
    "i" id (u64)         its length in Tier 2 (u64): what its manifests must list at least
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption, Fenced, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.services.base import Service
from segment_service.contracts.segment_storage import LogStateNow
from segment_service.contracts.sorted_map import SortedMap, map_changes_bytes_max, map_value_bytes_max
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.segment_record import write_record
from segment_service.metadata.table_changes import Taken, changes_max

BEFORE_FLUSH: Final = register("metadata_table.before_flush")
FLUSHED: Final = register("metadata_table.flushed_before_memory")

map_name: Final = "segments"
flush_count_max: Final = 4 * changes_max
"""Changes that one flush takes; more of them wait for the next one, which follows at once."""
retry_delay_min_s: Final = 0.5
retry_delay_max_s: Final = 30.0
"""Longest pause after a failed flush."""

_ID: Final = struct.Struct(">cQ")
_LENGTH: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class MetadataTableConfig:
    """Times in seconds."""

    flush_age_s: float = 30.0
    """A changed segment waits no longer for its entry."""
    idle_s: float = 60.0
    """A segment that nobody used for this time, counted from its last flush to the table, leaves memory."""
    look_s: float = 1.0
    """Pause between two looks at the segments whose time has come."""
    active_max: int = 100_000
    """Segments in memory beyond which those that may leave do so before their time."""


def name_key(name: str) -> bytes:
    return b"n" + name.encode()


def id_key(segment_id: int) -> bytes:
    return _ID.pack(b"i", segment_id)


def id_in(key: bytes) -> int | None:
    """The id in a key of ``id_key``; ``None`` for another key."""
    if key[:1] != b"i":
        return None
    segment_id: int = _ID.unpack(key)[1]
    return segment_id


class MetadataTable(Service):
    """Flushes changed segments by age and number. A failing Tier 2 is tried until it answers: checkpoints carry what
    the table lacks. ``Fenced`` and a damaged table end the service, and with it the container."""

    def __init__(
        self,
        metadata: ContainerMetadata,
        table: SortedMap,
        log_state: LogStateNow,
        clock: Clock,
        config: MetadataTableConfig | None = None,
    ) -> None:
        super().__init__(f"metadata-table-{metadata.container_id}")
        self.config = config or MetadataTableConfig()
        self.table = table
        self.on_flush: Callable[[Taken, int], None] = lambda taken, high_water: None
        """Called when the table has what was taken, with the last operation that was durable at that time."""
        self.flushes_total = 0
        self._metadata = metadata
        self._changes = metadata.changes
        self._log_state = log_state
        self._clock = clock
        self._changed = asyncio.Event()
        self._is_much = asyncio.Event()
        self._flushing = asyncio.Lock()

    async def on_start(self) -> None:
        """The map is open by now."""
        if self.table.stamp is not None:
            self._metadata.table_high_water = self.table.stamp.high_water
        self._changes.on_change = self._note_change
        self._note_change()
        self.spawn(self._run(), "flush")

    def _note_change(self) -> None:
        if len(self._changes):
            self._changed.set()
        if len(self._changes) >= changes_max:
            self._is_much.set()

    async def flush(self) -> None:
        """Bring all that is noted now to the table."""
        async with self._flushing:
            left = len(self._changes)
            while left > 0 and len(self._changes):
                left -= await self._flush_some()

    async def _flush_some(self) -> int:
        high_water = self._log_state().high_water
        taken = self._changes.take(flush_count_max)
        try:
            failpoint(BEFORE_FLUSH)
            entries = await self._entries(taken)
            stamp = self._log_state()
            await self.table.flush(entries, stamp)
            failpoint(FLUSHED)
        except BaseException:
            self._changes.failed()
            raise
        for segment_id in taken.gone:
            segment = self._metadata.segments.get(segment_id)
            if segment is not None:  # Tier 2 is not through with it: a checkpoint has it, without an entry to remove
                segment.in_table = False
        self._changes.stored()
        self._metadata.table_high_water = stamp.high_water
        self.flushes_total += 1
        self.on_flush(taken, high_water)
        return len(taken.changed) + len(taken.gone)

    async def _entries(self, taken: Taken) -> dict[bytes, bytes | None]:
        """The entries of a flush: each segment as it is at some moment of it, since later changes are noted again."""
        slices = TimeSlices(self._clock, 32)
        entries: dict[bytes, bytes | None] = {}
        for segment_id, name in taken.gone.items():
            entries[id_key(segment_id)] = None
            successor = self._metadata.by_name(name)
            if successor is None or not successor.in_table:  # else the entry is its own, or will be
                entries[name_key(name)] = None
            await slices.step()
        size = 0
        for segment_id in taken.changed:
            segment = self._metadata.segments.get(segment_id)
            if segment is None or segment.is_deleted or segment.is_merged:
                continue
            self._metadata.held.look(segment)
            record = write_record(segment)
            size += len(record) + len(segment.name)
            if len(record) > map_value_bytes_max or size > map_changes_bytes_max // 2:
                self._changes.note(segment_id)  # its attributes take too much: checkpoints carry it on
                continue
            segment.in_table = True
            entries[name_key(segment.name)] = record
            entries[id_key(segment_id)] = write_length(segment.storage_length)
            await slices.step()
        return entries

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._changed.wait()
            if not failures:
                await self._wait_due()
            self._changed.clear()
            self._is_much.clear()
            try:
                await self.flush()
                failures = 0
            except (Fenced, DataCorruption):
                raise
            except PravegaError as error:
                failures += 1
                self.log.warning("the metadata table could not be flushed", error=repr(error), failures=failures)
                await self._clock.sleep(min(retry_delay_max_s, retry_delay_min_s * 2 ** min(failures, 10)))
            self._note_change()

    async def _wait_due(self) -> None:
        """Wait until the changes are old, or many."""
        old = asyncio.ensure_future(self._clock.sleep(self.config.flush_age_s))
        much = asyncio.ensure_future(self._is_much.wait())
        try:
            await asyncio.wait((old, much), return_when=asyncio.FIRST_COMPLETED)
        finally:
            old.cancel()
            much.cancel()


def write_length(length: int) -> bytes:
    """The entry by id of a segment that has this length in Tier 2."""
    return _LENGTH.pack(length)


def stored_length(value: bytes) -> int:
    """The length in an entry by id."""
    length: int = _LENGTH.unpack(value)[0]
    return length
