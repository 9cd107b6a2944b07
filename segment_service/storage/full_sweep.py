"""Sweeps all segments of a container, once, over what programs left that kept no journals of changes.

Two passes. The first reads the manifests of segments that have chunks written for others (their names say so), notes
those chunks, and announces the owner (foreign_owners.py). The second looks at each segment's chunks of earlier epochs:
those that neither the segment's own manifest nor the notes name, nor an announced owner lists, are orphans.

A segment that has fewer bytes than its container knows of has lost manifests. Its chunks are kept, for an operator may
restore them; if it may have had chunks written for others, no chunk is judged at all. The first pass goes on all the
same, so that an operator learns of all such segments at once, up to a limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from pravega_common.errors import DataCorruption, Fenced
from pravega_common.runtime.clock import Clock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_names import ChunkId, Layout, ManifestKind
from segment_service.storage.foreign_owners import ForeignOwners
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_sweep import MergeUnfinished, SegmentSweep, Swept

pace_s: Final = 0.005
"""Rest after each segment, so that a sweep never competes with the flushes."""

ids_per_page: Final = 1_000
"""Ids of segments that are not in memory, asked for at once."""

left_out_max: Final = 100
"""Segments that the first pass goes on without. It ends when there are more, as each is a line of the log in each
sweep."""

no_segment: Final = -1
"""Stands for the segment of names that are not ours."""


class FullSweep:
    """Sweeps every segment that has an object; its cost is in proportion to what exists."""

    def __init__(
        self,
        chunks: ChunkStorage,
        layout: Layout,
        manifests: ManifestStore,
        owners: ForeignOwners,
        segments: SegmentSweep,
        clock: Clock,
    ) -> None:
        self._chunks = chunks
        self._layout = layout
        self._manifests = manifests
        self._owners = owners
        self._segments = segments
        self._clock = clock
        self._failure: DataCorruption | MergeUnfinished | None = None
        """The first one of the first pass."""

    async def sweep(self) -> Swept:
        """Both passes; what was found is given to the garbage collector. After it every chunk that a segment lists and
        that was written for another is announced. ``MergeUnfinished`` if it has to be repeated, ``DataCorruption`` if
        it is not known what some segments list of others."""
        foreign: set[ChunkId] = set()
        self._failure = None
        tombstones = await self._read_manifests(foreign)
        if self._failure is not None:
            raise self._failure
        orphans = await self._find_orphans(foreign)
        self._segments.check_complete()
        return Swept(orphans, tombstones)

    async def _read_manifests(self, foreign: set[ChunkId]) -> int:
        tombstones = 0
        unseen = set(self._segments.needed_at_begin)
        inactive = self._inactive_ids()
        inactive_id = await anext(inactive, None)
        async for segment_id, names in self._grouped(self._layout.manifests):
            unseen.discard(segment_id)
            while inactive_id is not None and inactive_id <= segment_id:
                if inactive_id < segment_id:
                    await self._check_again(inactive_id)
                inactive_id = await anext(inactive, None)
            tombstones += await self._look_at(segment_id, names, foreign)
            await self._clock.sleep(pace_s)
        while inactive_id is not None:
            await self._check_again(inactive_id)
            inactive_id = await anext(inactive, None)
        for segment_id in unseen:
            await self._check_again(segment_id)
        for segment_id in tuple(self._segments.changed_owners):  # what changes from here on was listed as it was
            with self._goes_on(segment_id):
                await self._note_foreign(segment_id, foreign)
            await self._clock.sleep(pace_s)
        return tombstones

    @contextlib.contextmanager
    def _goes_on(self, segment_id: int) -> Iterator[None]:
        """Let the first pass go on without a segment that may list chunks of others."""
        try:
            yield
        except (DataCorruption, MergeUnfinished) as error:
            self._segments.skip(segment_id, error)
            self._failure = self._failure or error
        if self._failure is not None and self._segments.left_out > left_out_max:
            raise self._failure

    async def _look_at(self, segment_id: int, names: list[str], foreign: set[ChunkId]) -> int:
        """Look at a segment by the names of its manifests; returns 1 for a tombstone that was discarded."""
        with self._goes_on(segment_id):
            self._check_epochs(names)
            top = max((self._layout.parse_manifest(name) for name in names), key=lambda one: one.id)
            if top.kind.is_foreign:
                await self._note_foreign(segment_id, foreign)
            elif top.kind is ManifestKind.TOMBSTONE and top.id.epoch < self._manifests.epoch:
                return await self._finish_deletion(segment_id)
        return 0

    async def _finish_deletion(self, segment_id: int) -> int:
        try:
            return await self._segments.finish_deletion(segment_id)
        except DataCorruption as error:  # what a tombstone lists nobody needs, so the others can be judged
            self._segments.skip(segment_id, error)
            return 0

    async def _note_foreign(self, segment_id: int, foreign: set[ChunkId]) -> None:
        async with self._manifests.lock(segment_id):
            view = await self._segments.checked_view(segment_id)
            if view.exists:
                foreign.update(chunk.id for chunk in view.chunks if chunk.segment_id != segment_id)
                await self._owners.announce_missing(segment_id, view.chunks)

    async def _inactive_ids(self) -> AsyncIterator[int]:
        """The ids of the segments that are not in memory and have bytes in Tier 2, in order."""
        first_id = 0
        while page := await self._segments.needed_lengths.inactive(first_id, ids_per_page):
            for segment_id, length in page:
                if length:
                    yield segment_id
            first_id = page[-1][0] + 1

    async def _check_again(self, segment_id: int) -> None:
        """Check a segment whose manifests were not listed, unless they were written, or it went, meanwhile."""
        if await self._segments.needed_length(segment_id):
            async with self._manifests.lock(segment_id):
                with self._goes_on(segment_id):
                    await self._segments.checked_view(segment_id, is_read_again=True)

    async def _find_orphans(self, foreign: set[ChunkId]) -> int:
        found = 0
        async for segment_id, names in self._grouped(self._layout.chunks):
            try:
                self._check_epochs(names)
                chunks = [self._layout.parse_chunk(name) for name in names]
            except DataCorruption as error:  # a name that is not ours among them
                self._segments.skip(segment_id, error)
                continue
            earlier = [chunk for chunk in chunks if chunk.epoch < self._manifests.epoch]
            if earlier:
                found += await self._discard_orphans(segment_id, [chunk for chunk in earlier if chunk not in foreign])
            await self._clock.sleep(pace_s)
        return found

    async def _discard_orphans(self, segment_id: int, chunks: list[ChunkId]) -> int:
        """Discard those that nobody lists. An announced owner of some may have lost the manifest that lists them, so
        that the first pass did not see it in the one before: then none of the segment's is judged."""
        try:
            async with self._manifests.lock(segment_id):
                view = await self._segments.checked_view(segment_id)
            if {chunk.id for chunk in view.chunks}.issuperset(chunks):
                return 0
            elsewhere = await self._segments.listed_elsewhere(segment_id)
            async with self._manifests.lock(segment_id):
                view = await self._segments.checked_view(segment_id)
                return await self._segments.discard_orphans(view, [chunk for chunk in chunks if chunk not in elsewhere])
        except (DataCorruption, MergeUnfinished) as error:
            self._segments.skip(segment_id, error)
            return 0

    async def _grouped(self, prefix: str) -> AsyncIterator[tuple[int, list[str]]]:
        """Names below the prefix by segment."""
        segment_id = no_segment
        names: list[str] = []
        async for info in self._chunks.list(prefix):
            found = self._segment_in(info.name)
            if found != segment_id and names:
                yield segment_id, names
                names = []
            segment_id = found
            names.append(info.name)
        if names:
            yield segment_id, names

    def _segment_in(self, name: str) -> int:
        """The segment in a name; ``no_segment`` in one that is not ours, as ``_check_epochs`` finds."""
        try:
            return self._layout.segment_in(name) or 0
        except ValueError:
            return no_segment

    def _check_epochs(self, names: Iterable[str]) -> None:
        """``Fenced`` if a name carries a higher epoch, ``DataCorruption`` if one is not ours."""
        for name in names:
            if self._layout.epoch_in(name) > self._manifests.epoch:
                raise Fenced(f"{name} was made by a later owner than epoch {self._manifests.epoch}")
