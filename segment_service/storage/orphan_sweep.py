"""Finds what earlier owners left behind in Tier 2: chunks that no manifest names, and unfinished deletions.

Two passes. The first reads the manifests of segments that have chunks written for others (their names say so) and
notes those chunks. The second looks at each segment's chunks of earlier epochs: those that neither the segment's own
manifest nor the notes name are orphans. Before they are discarded the segment gets a manifest of this epoch: a fenced
owner that still writes a manifest naming one of them comes too late, its manifest does not count.

A segment that has fewer bytes than its container knows of has lost manifests. Its chunks are kept, for an operator may
restore them; if it may have had chunks written for others, nothing is swept at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from pravega_common.errors import Fenced, PravegaError, SegmentDamaged
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import NeededLengths, OnDamage
from segment_service.storage.chunk_names import ChunkId, Layout, ManifestKind
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_view import Change, SegmentView

CLAIMED = register("storage.sweep.claimed")

start_delay_s = 30.0
"""How long after the start of a container its sweep begins."""

pace_s = 0.005
"""Rest after each segment, so that a sweep never competes with the flushes."""

retry_delay_s = 60.0
"""Rest after a sweep that failed."""

ids_per_page = 1_000
"""Ids of segments that are not in memory, asked for at once."""

attempts_max = 10
"""Sweeps tried in one epoch."""


class Swept(NamedTuple):
    """The result of a sweep."""

    orphans: int
    tombstones: int


class NothingNeeded:
    """``NeededLengths`` of a storage without a container."""

    def active(self) -> dict[int, int]:
        return {}

    async def length(self, segment_id: int) -> int:
        return 0

    async def inactive(self, first_id: int, count_max: int) -> list[tuple[int, int]]:
        return []


class OrphanSweeper(Service):
    """Sweeps once per epoch."""

    def __init__(
        self,
        container_id: int,
        chunks: ChunkStorage,
        layout: Layout,
        manifests: ManifestStore,
        garbage: GarbageCollector,
        clock: Clock,
    ) -> None:
        super().__init__(f"storage-sweep-{container_id}")
        self._chunks = chunks
        self._layout = layout
        self._manifests = manifests
        self._garbage = garbage
        self._clock = clock
        self._foreign: set[ChunkId] | None = None
        self._needed: dict[int, int] = {}
        self.needed_lengths: NeededLengths = NothingNeeded()
        self.on_damage: OnDamage = lambda segment_id, offset, length, error: None

    async def on_start(self) -> None:
        self.spawn(self._run(), "sweep")

    def note_moved(self, chunks: Iterable[ChunkId]) -> None:
        """Chunks that change their owner while a sweep runs are nobody's orphans."""
        if self._foreign is not None:
            self._foreign.update(chunks)

    async def sweep(self) -> Swept:
        """Both passes; what was found is given to the garbage collector."""
        self._foreign = set()
        self._needed = self.needed_lengths.active()
        try:
            tombstones = await self._read_manifests(self._foreign)
            orphans = await self._find_orphans(self._foreign)
        finally:
            self._foreign = None
        return Swept(orphans, tombstones)

    async def _read_manifests(self, foreign: set[ChunkId]) -> int:
        tombstones = 0
        unseen = set(self._needed)
        inactive = self._inactive_ids()
        inactive_id = await anext(inactive, None)
        async for segment_id, names in self._grouped(self._layout.manifests):
            unseen.discard(segment_id)
            while inactive_id is not None and inactive_id <= segment_id:
                if inactive_id < segment_id:
                    await self._check_again(inactive_id)
                inactive_id = await anext(inactive, None)
            top = max((self._layout.parse_manifest(name) for name in names), key=lambda one: one.id)
            if top.kind.is_foreign:
                async with self._manifests.lock(segment_id):
                    view = await self._manifests.view(segment_id)
                    await self._check_length(view)
                    foreign.update(chunk.id for chunk in view.chunks if chunk.segment_id != segment_id)
            elif top.kind is ManifestKind.TOMBSTONE and top.id.epoch < self._manifests.epoch:
                async with self._manifests.lock(segment_id):
                    tombstones += self._finish_deletion(await self._manifests.load(segment_id))
            await self._clock.sleep(pace_s)
        while inactive_id is not None:
            await self._check_again(inactive_id)
            inactive_id = await anext(inactive, None)
        for segment_id in unseen:
            await self._check_again(segment_id)
        return tombstones

    async def _inactive_ids(self) -> AsyncIterator[int]:
        """The ids of the segments that are not in memory and have bytes in Tier 2, in order."""
        first_id = 0
        while page := await self.needed_lengths.inactive(first_id, ids_per_page):
            for segment_id, length in page:
                if length:
                    yield segment_id
            first_id = page[-1][0] + 1

    async def _check_again(self, segment_id: int) -> None:
        """Check a segment whose manifests were not listed, unless they were written, or it went, meanwhile."""
        if await self._needed_length(segment_id):
            async with self._manifests.lock(segment_id):
                await self._check_length(await self._manifests.load(segment_id))

    async def _needed_length(self, segment_id: int) -> int:
        """The length that Tier 2 must have had when the sweep began; 0 for a segment that is gone."""
        needed = await self.needed_lengths.length(segment_id)
        return min(needed, self._needed.get(segment_id, needed))

    async def _check_length(self, view: SegmentView) -> None:
        """``SegmentDamaged`` if the manifests of a segment were lost: the chunks that they listed look like orphans."""
        needed = await self._needed_length(view.segment_id)
        if needed > view.length and not view.is_deleted:
            error = SegmentDamaged(
                view.segment_id,
                f"segment {view.segment_id} in Tier 2: the manifests that are there list {view.length} bytes, it must "
                f"have at least {needed}: restore its manifests from a copy",
            )
            self.on_damage(view.segment_id, needed - 1, 1, error)
            raise error

    def _finish_deletion(self, view: SegmentView) -> int:
        if not view.is_deleted or view.name is None:
            return 0
        names = [self._layout.chunk(chunk.id) for chunk in view.chunks]
        self._garbage.discard([*names, self._layout.manifest(view.name)])
        self._manifests.forget(view.segment_id)
        return 1

    async def _find_orphans(self, foreign: set[ChunkId]) -> int:
        found = 0
        async for segment_id, names in self._grouped(self._layout.chunks):
            earlier = [chunk for chunk in map(self._layout.parse_chunk, names) if chunk.epoch < self._manifests.epoch]
            if earlier:
                async with self._manifests.lock(segment_id):
                    found += await self._discard_orphans(segment_id, earlier, foreign)
            await self._clock.sleep(pace_s)
        return found

    async def _discard_orphans(self, segment_id: int, chunks: list[ChunkId], foreign: set[ChunkId]) -> int:
        try:
            view = await self._manifests.view(segment_id)
            await self._check_length(view)
        except SegmentDamaged as error:
            self.log.warning("a damaged segment is not swept", segment=segment_id, error=str(error))
            return 0
        if view.is_deleted and view.chunks:
            return 0  # its deletion is under way
        own = {chunk.id for chunk in view.chunks}
        orphans = [chunk for chunk in chunks if chunk not in own and chunk not in foreign]
        if not orphans:
            return 0
        if view.name is None or view.name.id.epoch < self._manifests.epoch:
            await self._manifests.commit(view, Change(delete=view.is_deleted))
            failpoint(CLAIMED)
        self._garbage.discard([self._layout.chunk(chunk) for chunk in orphans])
        return len(orphans)

    async def _grouped(self, prefix: str) -> AsyncIterator[tuple[int, list[str]]]:
        """Names below the prefix by segment. ``Fenced`` if one carries a higher epoch."""
        segment_id = -1
        names: list[str] = []
        async for info in self._chunks.list(prefix):
            found = int(info.name.removeprefix(prefix).partition("/")[0], 16)
            if self._layout.epoch_in(info.name) > self._manifests.epoch:
                raise Fenced(f"{info.name} was made by a later owner than epoch {self._manifests.epoch}")
            if found != segment_id and names:
                yield segment_id, names
                names = []
            segment_id = found
            names.append(info.name)
        if names:
            yield segment_id, names

    async def _run(self) -> None:
        await self._clock.sleep(start_delay_s)
        for _ in range(attempts_max):
            try:
                swept = await self.sweep()
                self.log.info("swept Tier 2", orphans=swept.orphans, tombstones=swept.tombstones)
                return
            except Fenced as error:
                self.log.warning("sweep is left to the next owner", reason=str(error))
                return
            except PravegaError as error:
                self.log.warning("sweep failed", error=str(error))
            await self._clock.sleep(retry_delay_s)
