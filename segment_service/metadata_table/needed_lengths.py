"""Knows the lengths that Tier 2 must have of a container's segments, in memory or not."""

from __future__ import annotations

import asyncio

from pravega_common.invariants import check
from segment_service.contracts.sorted_map import SortedMap
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata_table.metadata_table import id_in, id_key, stored_length


class ContainerNeededLengths:
    """``NeededLengths`` over the segments in memory and the metadata table."""

    def __init__(self, metadata: ContainerMetadata, table: SortedMap) -> None:
        self._metadata = metadata
        self._table = table
        self._opened = asyncio.Event()

    def table_opened(self) -> None:
        """The table can be asked from now on."""
        self._opened.set()

    async def wait_known(self) -> None:
        await self._opened.wait()

    def active(self) -> dict[int, int]:
        """Also of merged segments whose bytes Tier 2 has not moved."""
        return {
            segment.segment_id: segment.storage_length
            for segment in self._metadata.segments.values()
            if segment.storage_length and not segment.is_deleted
        }

    async def length(self, segment_id: int) -> int:
        segment = self._metadata.segments.get(segment_id)
        if segment is not None:
            return 0 if segment.is_deleted else segment.storage_length
        check(self._opened.is_set(), "a length was asked for before the table was open", segment_id=segment_id)
        value = await self._table.get(id_key(segment_id))
        # Asked after the answer: what came to memory, or went, meanwhile is decided there.
        if value is None or self._metadata.changes.is_gone_id(segment_id):
            return 0
        return stored_length(value)

    def is_moving(self, segment_id: int) -> bool:
        segment = self._metadata.segments.get(segment_id)
        return segment is not None and segment.is_merged

    async def inactive(self, first_id: int, count_max: int) -> list[tuple[int, int]]:
        check(self._opened.is_set(), "lengths were asked for before the table was open", first_id=first_id)
        entries = await self._table.scan(id_key(first_id), count_max)
        lengths = [
            (segment_id, stored_length(value)) for key, value in entries if (segment_id := id_in(key)) is not None
        ]
        metadata = self._metadata
        return [
            (segment_id, 0 if segment_id in metadata.segments or metadata.changes.is_gone_id(segment_id) else length)
            for segment_id, length in lengths
        ]
