"""Finds out what Tier 2 alone can give back of one container, and what is lost.

The metadata table has each segment as of its last flush there, its manifests have the bytes. Neither is ahead of the
other for certain: what the manifests hold counts for bytes, what the table holds for names and attributes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.names import is_index_segment, parent_segment_name
from segment_service.contracts.attributes import INDEX_OWNER, INDEXED_LENGTH
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.maintenance.read_only import ContainerReader
from segment_service.metadata.segment_record import read_record
from segment_service.metadata_table.metadata_table import name_key
from segment_service.storage.chunk_names import ChunkId, ManifestId
from segment_service.storage.segment_view import SegmentView

listed_max: Final = 1_000
"""Segments of each kind that a plan names; more are counted."""
moved_chunks_max: Final = 1_000_000
"""Chunks in the lists of segments that others were merged into, remembered (some 300 MB)."""


@dataclass(frozen=True, slots=True)
class ShorterSegment:
    """A segment of which bytes are lost that the metadata table knows of."""

    name: str
    known: int
    """Its length as of the last flush of the table."""
    held: int
    """Its length in Tier 2, which is its length from now on."""


@dataclass(slots=True)
class ListedSegments:
    """Segments that a plan names, up to a limit, and their number."""

    items: list[ShorterSegment] = field(default_factory=list)
    count: int = 0
    length: int = 0
    """Bytes: lost ones, or those of segments without a name."""

    def add(self, name: str, known: int, held: int) -> None:
        self.count += 1
        self.length += known - held
        if len(self.items) < listed_max:
            self.items.append(ShorterSegment(name, known, held))


@dataclass(slots=True)
class RestorePlan:
    """A container as a restore from Tier 2 leaves it."""

    container_id: int
    epoch_min: int
    """The new log's epoch is not below this."""
    high_water: int
    """The highest operation that is known to have been durable."""
    table_high_water: int
    """Operations up to here are in the metadata table."""
    next_segment_id: int
    segments: int = 0
    length: int = 0
    """Bytes that are served."""
    shorter: ListedSegments = field(default_factory=ListedSegments)
    """Segments that lose bytes of which the table knows."""
    damaged: ListedSegments = field(default_factory=ListedSegments)
    """Segments whose manifests are damaged or missing: they are quarantined at their next use."""
    nameless: ListedSegments = field(default_factory=ListedSegments)
    """Segments that have bytes in Tier 2 and were made after the last flush of the table, by id: their names are lost,
    and their bytes are kept and cannot be read."""
    maybe_merged: ListedSegments = field(default_factory=ListedSegments)
    """Segments of transactions that come back open, and whose bytes may be in their stream segments too: these have at
    least as many that the table does not know, and Tier 2 shows no difference between bytes of an append and of a merge
    from the cache."""
    finished: int = 0
    """Names that leave the table: segments that were deleted or merged in Tier 2 already."""
    indexes: int = 0
    """Event indexes that do not agree with their segments; they are made again as those grow."""


@dataclass(frozen=True, slots=True)
class RestoredSegment:
    """One entry of the metadata table, before and after."""

    before: SegmentMetadata
    after: SegmentMetadata | None
    """``None`` if the segment is gone."""
    is_damaged: bool = False

    @property
    def is_changed(self) -> bool:
        return self.after is None or self.after != self.before


class Tier2Contents:
    """Reads what Tier 2 holds of one container whose log is gone; nobody changes it meanwhile."""

    def __init__(self, reader: ContainerReader) -> None:
        self._chunks = reader.chunks
        self._reader = reader
        self._layout = reader.layout
        self._listers: dict[ChunkId, tuple[ManifestId, int]] = {}
        """By chunk of another segment: the newest manifest that lists it, and its segment."""

    async def plan(self, container_id: int, log_high_water: int = 0) -> RestorePlan | None:
        """``None`` for a container that Tier 2 has nothing of. ``DataCorruption`` if the table or a mark is damaged.

        ``log_high_water``: the last operation of the log that is given up, if it can be read.
        """
        mark, table = await self._reader.newest_mark(), await self._reader.newest_map()
        if mark is None and table is None and await self._is_empty():
            return None
        states = [state for state in (mark.log if mark else None, table.stamp if table else None) if state is not None]
        plan = RestorePlan(
            container_id,
            1 + await self._epoch_max(),
            max([log_high_water, *(state.high_water for state in states)]),
            table.stamp.high_water if table else 0,
            max([1, *(state.next_segment_id for state in states)]),
        )
        parent: RestoredSegment | None = None
        async for segment in self.segments():
            _count(plan, segment)
            if parent_segment_name(segment.before.name) != segment.before.name:
                _count_merge_source(plan, segment, parent)
            elif not is_index_segment(segment.before.name):
                parent = segment  # by their names, its transactions follow
        await self._find_nameless(plan)
        return plan

    async def segments(self) -> AsyncIterator[RestoredSegment]:
        """Every entry of the metadata table, in the order of names."""
        await self._find_listers()
        async for _, value in self._reader.entries(name_key("")):
            yield await self._restored(read_record(value))

    async def _restored(self, record: SegmentMetadata) -> RestoredSegment:
        view = await self._reader.view_if_sound(record.segment_id)
        if view is not None and view.is_deleted:
            return RestoredSegment(record, None)
        if view is None or view.is_dangling or view.length < record.storage_length:
            return RestoredSegment(record, _with_length(record, record.storage_length, None), is_damaged=True)
        if await self._is_merged_in_storage(view):
            return RestoredSegment(record, None)
        if is_index_segment(record.name) and not await self._agrees(record, view):
            return RestoredSegment(record, None)
        return RestoredSegment(record, _with_length(record, view.length, view))

    async def _agrees(self, index: SegmentMetadata, view: SegmentView) -> bool:
        """Whether an index has the records that its attributes speak of, and none beyond the end of its segment."""
        segment = await self._reader.view_if_sound(index.attributes.get(INDEX_OWNER, 0))
        if segment is None or segment.is_deleted or segment.is_dangling or view.length != index.length:
            return False
        return index.attributes.get(INDEXED_LENGTH, 0) <= segment.length

    # --- merges that Tier 2 has half: the target's manifest lists the chunks, the source's does so still

    async def _find_listers(self) -> None:
        self._listers.clear()
        async for newest in self._reader.newest_manifests():
            if newest.kind.is_foreign:
                await self._note_lister(newest.segment_id)
        if not self._chunks.damage:
            return
        async for segment_id, _ in self._reader.stored_lengths():  # some of them were not listed
            await self._note_lister(segment_id)

    async def _note_lister(self, segment_id: int) -> None:
        view = await self._reader.view_if_sound(segment_id)
        if view is None or view.name is None or not view.exists or not view.has_foreign:
            return
        for chunk in view.chunks:
            newer = self._listers.get(chunk.id, (view.name.id, segment_id))
            self._listers[chunk.id] = max(newer, (view.name.id, segment_id))
        if len(self._listers) > moved_chunks_max:
            raise ConfigurationError(
                f"segments of {self._layout.prefix} list more than {moved_chunks_max} chunks beside merged ones, more "
                "than a restore keeps in memory"
            )

    async def _is_merged_in_storage(self, view: SegmentView) -> bool:
        """Whether a target has all of the segment's chunks by a later manifest."""
        if not view.chunks or view.name is None:
            return False
        id, target_id = self._listers.get(view.chunks[0].id, (view.name.id, view.segment_id))
        if target_id == view.segment_id or id < view.name.id:
            return False
        target = await self._reader.view_if_sound(target_id)
        return target is not None and {chunk.id for chunk in view.chunks} <= {chunk.id for chunk in target.chunks}

    # --- what has no name

    async def _find_nameless(self, plan: RestorePlan) -> None:
        """Compare the ids in the table with those that have manifests; both are in order."""
        named = self._reader.stored_lengths()
        head = await _next_id(named)
        async for newest in self._reader.newest_manifests():
            segment_id = newest.segment_id
            plan.next_segment_id = max(plan.next_segment_id, segment_id + 1)
            while head is not None and head < segment_id:
                head = await _next_id(named)
            if head != segment_id:
                view = await self._reader.view_if_sound(segment_id)
                if view is None or (view.exists and not await self._is_merged_in_storage(view)):
                    plan.nameless.add(f"id {segment_id}", 0 if view is None else view.length, 0)
        async for info in self._chunks.list(self._layout.chunks):
            plan.next_segment_id = max(plan.next_segment_id, self._layout.parse_chunk(info.name).segment_id + 1)

    async def _is_empty(self) -> bool:
        async for _ in self._chunks.list(self._layout.prefix):
            return False
        return True

    async def _epoch_max(self) -> int:
        epoch = 0
        async for info in self._chunks.list(self._layout.prefix):
            epoch = max(epoch, self._layout.epoch_in(info.name))
        return epoch


async def _next_id(named: AsyncIterator[tuple[int, int]]) -> int | None:
    """The id of the next segment in the table; ``None`` at the end."""
    entry = await anext(named, None)
    return None if entry is None else entry[0]


def _count(plan: RestorePlan, segment: RestoredSegment) -> None:
    plan.next_segment_id = max(plan.next_segment_id, segment.before.segment_id + 1)
    after, before = segment.after, segment.before
    if after is None:
        if is_index_segment(before.name):
            plan.indexes += 1
        else:
            plan.finished += 1
        return
    plan.segments += 1
    plan.length += after.length - after.start_offset
    if segment.is_damaged:
        plan.damaged.add(before.name, before.length, after.length)
    elif before.length > after.length:
        plan.shorter.add(before.name, before.length, after.length)


def _count_merge_source(plan: RestorePlan, source: RestoredSegment, parent: RestoredSegment | None) -> None:
    """Name a source that is there and may be in its parent too: Tier 2 got the merged bytes, and lacks the deletion."""
    if source.after is None or not source.after.length or parent is None or parent.after is None:
        return
    name = source.before.name
    grown = parent.after.length - parent.before.length
    if parent_segment_name(name) == parent.before.name and grown >= source.after.length:
        plan.maybe_merged.add(name, source.after.length, 0)


def _with_length(record: SegmentMetadata, length: int, view: SegmentView | None) -> SegmentMetadata:
    """The record of a segment that has ``length`` bytes, all of them in Tier 2. Merges behind its end were not there:
    they may be made again."""
    start = max(record.start_offset, 0 if view is None else view.start_offset)
    merges = {key: one for key, one in (record.merges or {}).items() if one.target_length <= length}
    is_sealed = record.is_sealed or (view is not None and view.is_sealed)
    return replace(
        record,
        length=length,
        storage_length=length,
        start_offset=min(start, length),
        is_sealed=is_sealed,
        is_sealed_in_storage=is_sealed,
        merges=merges or None,
    )
