"""Examines the manifests and chunks of one container in Tier 2, while its owner may change them.

Three listings that are in the order of segment ids are read side by side: manifests, chunks, and the lengths in the
metadata table. What looks wrong is looked at again with the segment's newest manifest: an owner deletes an object only
after a manifest without it was stored, so what is missing under an unchanged manifest is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import DataCorruption, SegmentDamaged, SegmentNotFound
from pravega_common.runtime.joined import all_ended
from segment_service.maintenance.findings import ANNOUNCE_AGAIN, RESTORE_OBJECT, ContainerReport, DataFinding
from segment_service.maintenance.read_only import ContainerReader
from segment_service.storage.chunk_format import ChunkForm
from segment_service.storage.chunk_format import stored_length as stored_chunk_length
from segment_service.storage.chunk_names import ChunkId
from segment_service.storage.chunk_reader import ChunkReader
from segment_service.storage.manifest import ChunkRef
from segment_service.storage.segment_view import SegmentView

segments_at_once_max: Final = 16
"""Segments that are examined at the same time."""
chunks_at_once_max: Final = 4
"""Chunks of at most 16 MiB that are read at the same time by a deep examination."""
looks_max: Final = 8
"""How often a segment that keeps changing is looked at; it is well then, since its owner reads and writes it."""
orphans_max: Final = 100_000
"""Chunks without a manifest that are remembered; beyond it they are not counted."""
moved_chunks_max: Final = 2_000_000
"""Chunks that a merge gave another owner, remembered (some 300 MB); beyond it orphans are not counted."""

Progress = Callable[[str], None]


@dataclass(slots=True)
class Suspect:
    """A segment of which Tier 2 has less than the metadata table says: it lost manifests, or was deleted of late."""

    segment_id: int
    needed: int
    found: int


@dataclass(slots=True)
class _Listed:
    """Joins the three listings for one segment."""

    segment_id: int
    has_manifest: bool = False
    chunks: dict[ChunkId, int] = field(default_factory=dict)
    """Chunks that were written for it, with the lengths of the objects."""
    needed: int = 0


class SegmentExamination:
    """Examines one container once; ``suspects`` are left to a caller that knows the log."""

    def __init__(
        self,
        reader: ContainerReader,
        report: ContainerReport,
        progress: Progress,
        *,
        deep: bool,
    ) -> None:
        self.suspects: list[Suspect] = []
        self._chunks = reader.chunks
        self._reader = reader
        self._layout = reader.layout
        self._report = report
        self._progress = progress
        self._deep = deep
        self._with_owners = False
        self._chunk_reader = ChunkReader(reader.chunks, reader.layout)
        self._reading = asyncio.Semaphore(chunks_at_once_max)
        self._moved: set[ChunkId] = set()
        self._orphans: set[ChunkId] = set()

    async def run(self, *, with_table: bool, with_owners: bool) -> None:
        """``with_table``: whether the metadata table can be read; ``with_owners``: whether all owners of chunks that
        were written for others must be announced."""
        self._with_owners = with_owners
        await self._note_moved()
        waiting: list[_Listed] = []
        async for listed in self._listed(with_table=with_table):
            waiting.append(listed)
            if len(waiting) == segments_at_once_max:
                await self._examine_all(waiting)
                waiting.clear()
        await self._examine_all(waiting)
        if self._orphans and self._report.orphans is not None:
            await self._note_moved()  # merges that were made meanwhile
            self._orphans -= self._moved
        if self._report.orphans is not None:
            self._report.orphans = len(self._orphans)

    # --- the three listings

    async def _listed(self, *, with_table: bool) -> AsyncIterator[_Listed]:
        """One item for each id, in order."""
        sources = [self._listed_manifests(), self._listed_chunks()]
        if with_table:
            sources.append(self._listed_lengths())
        heads = [await anext(source, None) for source in sources]
        while any(head is not None for head in heads):
            listed = _Listed(min(head.segment_id for head in heads if head is not None))
            for number, head in enumerate(heads):
                if head is not None and head.segment_id == listed.segment_id:
                    listed.has_manifest |= head.has_manifest
                    listed.chunks |= head.chunks
                    listed.needed = max(listed.needed, head.needed)
                    heads[number] = await anext(sources[number], None)
            yield listed

    async def _listed_manifests(self) -> AsyncIterator[_Listed]:
        async for newest in self._reader.newest_manifests():
            yield _Listed(newest.segment_id, has_manifest=True)

    async def _listed_chunks(self) -> AsyncIterator[_Listed]:
        group: _Listed | None = None
        async for info in self._chunks.list(self._layout.chunks):
            chunk = self._layout.parse_chunk(info.name)
            if group is not None and group.segment_id != chunk.segment_id:
                yield group
                group = None
            group = group or _Listed(chunk.segment_id)
            group.chunks[chunk] = info.length
        if group is not None:
            yield group

    async def _listed_lengths(self) -> AsyncIterator[_Listed]:
        async for segment_id, length in self._reader.stored_lengths():
            yield _Listed(segment_id, needed=length)

    async def _note_moved(self) -> None:
        """Note the chunks that merges gave other owners."""
        async for newest in self._reader.newest_manifests():
            if newest.kind.is_foreign and self._report.orphans is not None:
                await self._note_moved_to(newest.segment_id)

    async def _note_moved_to(self, segment_id: int) -> None:
        try:
            view = await self._reader.view(segment_id)
        except SegmentDamaged:
            self._report.orphans = None  # what it lists is unknown
            return
        self._moved.update(chunk.id for chunk in view.chunks if chunk.segment_id != segment_id)
        if len(self._moved) > moved_chunks_max:
            self._report.orphans = None

    # --- one segment

    async def _examine_all(self, listed: list[_Listed]) -> None:
        await all_ended(map(self._examine, listed))
        done = self._report.segments
        if done // 10_000 != (done - len(listed)) // 10_000:
            self._progress(f"container {self._report.container_id}: {done} segments, {self._report.chunks} chunks")

    async def _examine(self, listed: _Listed) -> None:
        segment_id = listed.segment_id
        last = None
        for _ in range(looks_max):
            try:
                view = await self._reader.view(segment_id)
            except SegmentDamaged as error:
                self._find(DataFinding("manifest", str(error), RESTORE_OBJECT, segment_id))
                return
            problem = await self._problem(view, listed.chunks) or await self._unannounced(view)
            if problem is None or (last is not None and view.name == last):
                break
            last = view.name
        else:
            problem = None
        if problem is not None:
            self._find(problem)
        self._count(view)
        if view.length < listed.needed and not view.is_deleted and not view.is_dangling:
            self.suspects.append(Suspect(segment_id, listed.needed, view.length))
        elif not view.is_dangling:
            self._note_orphans(view, listed)

    def _count(self, view: SegmentView) -> None:
        if view.exists:
            self._report.segments += 1
            self._report.chunks += len(view.chunks)
            self._report.length += sum(chunk.length for chunk in view.chunks)

    def _note_orphans(self, view: SegmentView, listed: _Listed) -> None:
        own = {chunk.id for chunk in view.chunks}
        found = [
            one for one in listed.chunks if one.epoch < self._report.epoch and one not in own and one not in self._moved
        ]
        if len(self._orphans) + len(found) > orphans_max:
            self._report.orphans = None
        else:
            self._orphans.update(found)

    async def _problem(self, view: SegmentView, listed: dict[ChunkId, int]) -> DataFinding | None:
        """Checks its objects; of several chunks that are wrong, the first is named, with their number."""
        if view.is_dangling:
            text = f"segment {view.segment_id}: manifest {view.name} is there, and the base that it changes is missing"
            return DataFinding("manifest", text, RESTORE_OBJECT, view.segment_id)
        if not view.exists:
            return None
        shorts = [await self._short(chunk, listed) for chunk in view.chunks]
        wrong = [text for text in shorts if text is not None]
        if not wrong and self._deep:
            for first in range(0, len(view.chunks), chunks_at_once_max):
                some = view.chunks[first : first + chunks_at_once_max]
                found = await all_ended(self._read(view.segment_id, chunk) for chunk in some)
                wrong += [text for text in found if text is not None]
        if not wrong:
            return None
        more = f" (and {len(wrong) - 1} more of its {len(view.chunks)} chunks)" if len(wrong) > 1 else ""
        text = f"segment {view.segment_id}: {wrong[0]}{more}"
        return DataFinding("chunk", text, RESTORE_OBJECT, view.segment_id)

    async def _unannounced(self, view: SegmentView) -> DataFinding | None:
        """The finding of lost announcements: a sweep may take the chunks of which they tell for garbage."""
        if not self._with_owners or not view.exists:
            return None
        missing = [one async for one in self._reader.owners.missing(view.segment_id, view.chunks)]
        if not missing:
            return None
        more = f" (and of {len(missing) - 1} more segments)" if len(missing) > 1 else ""
        text = (
            f"segment {view.segment_id} lists chunks that were written for segment {missing[0]}{more}, and nothing "
            f"below {self._layout.foreign_owners_of(missing[0])} says so: a sweep may take them for garbage"
        )
        return DataFinding("owner", text, ANNOUNCE_AGAIN.format(name=self._layout.journal_of_all), view.segment_id)

    async def _short(self, chunk: ChunkRef, listed: dict[ChunkId, int]) -> str | None:
        name = self._layout.chunk(chunk.id)
        length = listed.get(chunk.id)
        needed = stored_chunk_length(chunk.length) if chunk.form == ChunkForm.BLOCKS else chunk.length
        if length is None:  # written since the listing, or for another segment
            try:
                length = (await self._chunks.info(name)).length
            except SegmentNotFound:
                return f"chunk {name} is missing"
            except DataCorruption as error:  # of the map of shared objects, where the chunk lies
                return f"chunk {name}: {error}"
        return None if length >= needed else f"chunk {name} has {length} bytes, it must have {needed}"

    async def _read(self, segment_id: int, chunk: ChunkRef) -> str | None:
        async with self._reading:
            try:
                await self._chunk_reader.read(segment_id, chunk)
            except SegmentNotFound:
                return f"chunk {self._layout.chunk(chunk.id)} is missing"
            except SegmentDamaged as error:
                return str(error)
        return None

    def _find(self, finding: DataFinding) -> None:
        if finding.kind == "manifest":
            self._report.orphans = None
        self._report.add(finding)
