"""Sweeps one segment: finds the objects in Tier 2 that were left of its changes.

They are chunks that were written for it and that no manifest lists, manifests that were replaced, unfinished deletions,
and announcements of owners (foreign_owners.py) that list none of its chunks. Before chunks are discarded the segment
gets a manifest of this epoch: a fenced owner that still writes a manifest naming one of them comes too late, its
manifest does not count. The same goes for an owner whose announcement is discarded.

A segment that has fewer bytes than its container knows of has lost manifests. Its chunks are kept, for an operator may
restore them, and so are the chunks of others that it may list. A segment that is merged away may have none because Tier
2 has done the merge and the container does not know yet, as after a crash: it is left, and the sweep repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import structlog

from pravega_common.errors import DataCorruption, FailedError, Fenced, SegmentDamaged
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import NeededLengths, OnDamage
from segment_service.storage.change_journal import ChangeJournal
from segment_service.storage.chunk_names import ChunkId, Layout
from segment_service.storage.foreign_owners import ForeignOwners
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_view import Change, SegmentView

CLAIMED: Final = register("storage.sweep.claimed")


class MergeUnfinished(FailedError):
    """Tier 2 may have done a merge that the storage writer has not come to: whether it must have the source is open."""


class Swept(NamedTuple):
    """The result of a sweep."""

    orphans: int
    tombstones: int

    def and_also(self, other: Swept) -> Swept:
        return Swept(self.orphans + other.orphans, self.tombstones + other.tombstones)


class NothingNeeded:
    """``NeededLengths`` of a storage without a container."""

    async def wait_known(self) -> None:
        return

    def active(self) -> dict[int, int]:
        return {}

    async def length(self, segment_id: int) -> int:
        return 0

    def is_moving(self, segment_id: int) -> bool:
        return False

    async def inactive(self, first_id: int, count_max: int) -> list[tuple[int, int]]:
        return []


class SegmentSweep:
    """Sweeps segments, between ``begin`` and ``end``."""

    def __init__(
        self,
        chunks: ChunkStorage,
        layout: Layout,
        garbage: GarbageCollector,
        manifests: ManifestStore,
        journal: ChangeJournal,
        owners: ForeignOwners,
    ) -> None:
        self.needed_lengths: NeededLengths = NothingNeeded()
        self.on_damage: OnDamage = lambda segment_id, offset, length, error: None
        self._chunks = chunks
        self._layout = layout
        self._garbage = garbage
        self._manifests = manifests
        self._journal = journal
        self._owners = owners
        self._moving: list[Collection[ChunkId]] = []
        """Chunks that change their owner now."""
        self._settled: set[ChunkId] | None = None
        """Chunks that this sweep does not judge (any more)."""
        self._needed: dict[int, int] = {}
        self._changed_owners: set[int] = set()
        self._left: set[int] = set()
        """Segments that could not be judged yet."""
        self._damaged: set[int] = set()
        """Segments of which something is damaged."""
        manifests.on_stored = self._stored
        self._log = structlog.get_logger(service="segment-sweep", container=layout.prefix)

    async def begin(self) -> None:
        """Comes before any segment is locked."""
        await self.needed_lengths.wait_known()
        self._settled = {chunk for chunks in self._moving for chunk in chunks}
        self._needed = self.needed_lengths.active()
        self._changed_owners.clear()
        self._left.clear()
        self._damaged.clear()

    def end(self) -> None:
        self._settled = None

    @property
    def left(self) -> Collection[int]:
        """The segments that could not be judged yet: what names them for a sweep must stay."""
        return self._left

    @property
    def damaged(self) -> Collection[int]:
        """The segments of which something is damaged, and that were not judged."""
        return self._damaged

    def check_complete(self) -> None:
        """``MergeUnfinished`` if segments were left."""
        if self._left:
            raise MergeUnfinished(
                f"{len(self._left)} merged segments wait for the storage writer, one is {min(self._left)}"
            )

    @contextlib.contextmanager
    def moving(self, chunks: Collection[ChunkId]) -> Iterator[None]:
        """Let chunks change their owner inside: a sweep that runs meanwhile, or begins, may look at one owner too late
        and at the other too early."""
        self._moving.append(chunks)
        self._settle(chunks)
        try:
            yield
        finally:
            self._moving.remove(chunks)

    def _settle(self, chunks: Iterable[ChunkId]) -> None:
        if self._settled is not None:
            self._settled.update(chunks)

    def _stored(self, view: SegmentView) -> None:
        if self._settled is not None and view.has_foreign:
            self._changed_owners.add(view.segment_id)

    @property
    def changed_owners(self) -> Collection[int]:
        """The segments with chunks of others that got a manifest since the sweep began. A listing that is under way may
        have neither this nor all that it replaces, which are deleted meanwhile."""
        return self._changed_owners

    @property
    def needed_at_begin(self) -> Collection[int]:
        """The segments in memory that had bytes in Tier 2 when the sweep began."""
        return self._needed.keys()

    async def announce_missing(self, segment_id: int) -> None:
        """Make sure that the segment is announced as an owner of the chunks that it lists and that were written for
        others: an announcement that was lost would make orphans of them. Comes before any of these is judged. What a
        tombstone lists goes anyway, announcements first."""
        try:
            async with self._manifests.lock(segment_id):
                view = await self._manifests.load(segment_id)
                if not view.exists:
                    return
                count = await self._owners.announce_missing(segment_id, view.chunks)
                if count:
                    self._log.error("announcements were lost and are made again", segment=segment_id, count=count)
        except DataCorruption as error:  # what is not announced cannot be judged either
            self._log.warning("an owner may lack announcements", segment=segment_id, error=str(error))

    async def sweep(self, segment_id: int) -> Swept:
        """Give what is left of the segment to the garbage collector. ``Fenced`` if a later owner wrote any of it."""
        try:
            elsewhere = await self.listed_elsewhere(segment_id)
            chunks = await self._earlier_chunks(segment_id)
            async with self._manifests.lock(segment_id):
                view = await self.checked_view(segment_id)
                is_tombstone = view.is_deleted and view.name is not None and view.name.id.epoch < self._manifests.epoch
                orphans = await self.discard_orphans(view, [chunk for chunk in chunks if chunk not in elsewhere])
                if is_tombstone and not orphans:
                    await self._finish_deletion(view)
                    return Swept(0, 1)
                if view.is_dangling:
                    await self._claim(view)  # nothing of it is needed: late puts brought it back without its base
                return Swept(orphans, 0)
        except (DataCorruption, MergeUnfinished) as error:  # also a name among its objects that is not ours
            self.skip(segment_id, error)
            return Swept(0, 0)

    @property
    def left_out(self) -> int:
        """The number of segments that this sweep did not judge, or not yet."""
        return len(self._damaged | self._left)

    def skip(self, segment_id: int, error: DataCorruption | MergeUnfinished) -> None:
        """Go on without a segment."""
        if isinstance(error, MergeUnfinished):
            self._left.add(segment_id)
        elif segment_id not in self._damaged:
            self._damaged.add(segment_id)
            self._log.warning("a damaged segment is not swept", segment=segment_id, error=str(error))

    async def listed_elsewhere(self, segment_id: int) -> set[ChunkId]:
        """The chunks written for the segment that others list. Announcements of those that list none are discarded."""
        listed: set[ChunkId] = set()
        announced: dict[int, list[str]] = {}
        for one in await self._owners.of(segment_id):
            announced.setdefault(one.owner_id, []).append(self._layout.foreign_owner(one))
        for owner_id, names in announced.items():
            async with self._manifests.lock(owner_id):
                view = await self.checked_view(owner_id)
                found = {chunk.id for chunk in view.chunks if chunk.segment_id == segment_id}
                if not found:
                    await self._claim(view)
                    self._garbage.discard(names)
                listed |= found
        return listed

    async def _earlier_chunks(self, segment_id: int) -> list[ChunkId]:
        found = []
        async for info in self._chunks.list(self._layout.chunks_of(segment_id)):
            chunk = self._layout.parse_chunk(info.name)
            if chunk.epoch > self._manifests.epoch:
                raise Fenced(f"{info.name} was made by a later owner than epoch {self._manifests.epoch}")
            if chunk.epoch < self._manifests.epoch:
                found.append(chunk)
        return found

    async def discard_orphans(self, view: SegmentView, chunks: Iterable[ChunkId]) -> int:
        """Discard those of these chunks of earlier epochs that the segment does not list. The caller holds its lock."""
        own = {chunk.id for chunk in view.chunks}
        orphans = [chunk for chunk in chunks if chunk not in own and chunk not in (self._settled or ())]
        if orphans:
            async with self._journal.noted(view.segment_id):
                await self._claim(view)
                self._garbage.discard([self._layout.chunk(chunk) for chunk in orphans])
            self._settle(orphans)  # not twice
        return len(orphans)

    async def _claim(self, view: SegmentView) -> None:
        """Store a manifest of this epoch unless the newest one is, and stays the newest. For a segment that is not in
        Tier 2 it is a tombstone, which the next owner removes with all others."""
        if self._manifests.is_settled(view):
            return
        async with self._journal.noted(view.segment_id, is_lasting=not view.exists):
            await self._manifests.commit(view, Change(delete=not view.exists))
            failpoint(CLAIMED)

    async def finish_deletion(self, segment_id: int) -> int:
        """Discard a tombstone with the chunks that it lists; returns 1, and 0 if the segment has none any more."""
        async with self._manifests.lock(segment_id), self._journal.noted(segment_id):
            view = await self._manifests.load(segment_id)
            if view.is_deleted:
                await self._finish_deletion(view)
            return int(view.is_deleted)

    async def _finish_deletion(self, view: SegmentView) -> None:
        if view.name is None:
            return
        names = [self._layout.chunk(chunk.id) for chunk in view.chunks]
        names += await self._owners.names(view.segment_id, view.chunks)
        self._garbage.discard([*names, self._layout.manifest(view.name)])
        self._manifests.forget(view.segment_id)

    async def needed_length(self, segment_id: int) -> int:
        """The length that Tier 2 must have had when the sweep began; 0 for a segment that is gone."""
        needed = await self.needed_lengths.length(segment_id)
        return min(needed, self._needed.get(segment_id, needed))

    async def checked_view(self, segment_id: int, *, is_read_again: bool = False) -> SegmentView:
        """The segment as Tier 2 has it; ``is_read_again``: whatever is in memory. Errors as ``_check_length`` has them,
        and ``SegmentDamaged`` for a manifest that is wrong. All damage is reported. The caller holds the lock."""
        try:
            view = await (self._manifests.load if is_read_again else self._manifests.view)(segment_id)
        except SegmentDamaged as error:
            needed = await self.needed_length(segment_id)
            if needed:
                self.on_damage(segment_id, needed - 1, 1, error)
            raise
        await self._check_length(view)
        return view

    async def _check_length(self, view: SegmentView) -> None:
        """``SegmentDamaged`` if the manifests of a segment were lost: the chunks that they listed look like orphans.
        ``MergeUnfinished`` if they may have gone with a merge instead."""
        needed = await self.needed_length(view.segment_id)
        if needed > view.length and not view.is_deleted:
            if self.needed_lengths.is_moving(view.segment_id):
                raise MergeUnfinished(f"segment {view.segment_id} is merged, which the storage writer has not come to")
            error = SegmentDamaged(
                view.segment_id,
                f"segment {view.segment_id} in Tier 2: the manifests that are there list {view.length} bytes, it must "
                f"have at least {needed}: restore its manifests from a copy",
            )
            self.on_damage(view.segment_id, needed - 1, 1, error)
            raise error
