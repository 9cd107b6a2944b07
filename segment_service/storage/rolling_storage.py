"""Makes segments, as growing byte strings, of chunks that are put once; see the README of this folder."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

from pravega_common.errors import (
    BadOffset,
    ContainerOffline,
    InvalidArgument,
    SegmentDamaged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnsupportedOperation,
)
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from pravega_common.services.base import Service
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import (
    Barrier,
    EpochMark,
    LogStateNow,
    NeededLengths,
    OnDamage,
    StorageState,
    write_bytes_max,
)
from segment_service.storage.change_journal import ChangeJournal
from segment_service.storage.chunk_format import unfilled
from segment_service.storage.chunk_names import Layout, ManifestName
from segment_service.storage.chunk_reader import REMEDY, ChunkReader
from segment_service.storage.compaction import Compactor
from segment_service.storage.epoch_marks import EpochMarks, PutFresh
from segment_service.storage.foreign_owners import ForeignOwners, origins
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest import ChunkRef
from segment_service.storage.manifest_store import Entry, ManifestStore
from segment_service.storage.orphan_sweep import OrphanSweeper
from segment_service.storage.segment_view import Change, SegmentView
from segment_service.storage.shared_objects import SharedObjects, shared_object_bytes_max

WRITE_CHUNK_STORED = register("storage.write.chunk_stored")
WRITE_MANIFEST_STORED = register("storage.write.manifest_stored")
TRUNCATE_MANIFEST_STORED = register("storage.truncate.manifest_stored")
CONCAT_TARGET_STORED = register("storage.concat.target_stored")
CONCAT_BARRIER_PASSED = register("storage.concat.barrier_passed")
CONCAT_SOURCE_STORED = register("storage.concat.source_stored")
DELETE_TOMBSTONE_STORED = register("storage.delete.tombstone_stored")

read_pieces_at_once_max = 8
"""Chunks that one read fetches at the same time."""

read_attempts_max = 4
"""How often a read looks up its chunks again when one is gone (it was replaced meanwhile)."""


class RollingStorage:
    """``SegmentStorage`` of one container at one epoch over a ``ChunkStorage`` shared by all containers.

    The maker of the chunk storage starts and closes it. ``background=False`` leaves collecting garbage, compacting and
    sweeping to explicit calls (tests). ``shares_objects``: small objects become entries of a map, which
    ``SortedRunMaps`` attaches to ``shared``; what an earlier owner shared is read in any case. ``trusts_journals``:
    whether what earlier owners noted of their changes is all that the next sweep has to look at; ``False`` lets the
    next owner sweep all segments.
    """

    def __init__(
        self,
        chunks: ChunkStorage,
        container_id: int,
        clock: Clock,
        *,
        background: bool = True,
        shares_objects: bool = False,
        trusts_journals: bool = True,
    ) -> None:
        self.layout = Layout(container_id)
        chunks = self.shared = SharedObjects(chunks, self.layout, clock)
        self._shares_objects = shares_objects
        self.garbage = GarbageCollector(container_id, chunks, self.layout, clock)
        self._manifests = ManifestStore(chunks, self.layout, self.garbage)
        self.put_fresh: PutFresh = self._manifests.put_fresh
        self.new_number = self._manifests.new_number
        self._reader = ChunkReader(chunks, self.layout)
        self._trusts_journals = trusts_journals
        place = chunks, self.layout, self.garbage
        self._journal = ChangeJournal(*place, clock, self.put_fresh, self.new_number)
        self._manifests.on_unanswered = self._journal.leave
        self._owners = ForeignOwners(chunks, self.layout, self._manifests.put_for, self.new_number)
        self._marks = EpochMarks(*place, self.put_fresh, self.new_number)
        noted = self._manifests, self._journal, self._owners
        self.compactor = Compactor(container_id, self._reader, *noted, self.layout, self.garbage, clock)
        self.sweeper = OrphanSweeper(container_id, *place, *noted, self._marks, clock)
        self._services: tuple[Service, ...] = (self.garbage, self.compactor, self.sweeper)
        self._chunks = chunks
        self._background = background
        self._barrier: Barrier | None = None
        self._closed = False

    async def newest_mark(self) -> EpochMark | None:
        return await self._marks.newest()

    async def first_object(self) -> str:
        async for info in self._chunks.list(self.layout.prefix):
            return info.name
        return ""

    async def start(self, epoch: int, barrier: Barrier, log_state: LogStateNow) -> None:
        check(self._barrier is None, "storage started twice", epoch=epoch)
        self.garbage.open(epoch, barrier, self.shared.settle, self.shared.is_entry, self.shared.stays)
        self._manifests.epoch = self._journal.epoch = self._owners.epoch = epoch
        newest = await self._marks.newest()
        self._marks.has_journals = self._trusts_journals and newest is not None and newest.has_journals
        self._marks.shares_objects = await self.shared.is_needed(self._shares_objects)
        await self._marks.open(epoch, log_state)
        await self.shared.open(epoch, self._shares_objects, self._marks.marked())
        if self.shared.is_sharing:
            self._manifests.entry_bytes_max = shared_object_bytes_max
            self._manifests.put_together = self.shared.put_together
        self._barrier = barrier  # only now: a start that found Tier 2 away may be repeated
        if self._background:
            for service in self._services:
                await service.start()

    async def mark(self, high_water: int) -> None:
        await self._marks.cover(high_water)

    async def close(self) -> None:
        self._closed = True
        for service in reversed(self._services):
            await service.stop()
        await self.shared.close()

    def watch_damage(self, needed_lengths: NeededLengths, callback: OnDamage) -> None:
        self.sweeper.watch(needed_lengths, callback)
        self.compactor.on_damage = callback

    @property
    def unswept_segments(self) -> int:
        return self.sweeper.left_out

    @property
    def sweep_failures(self) -> int:
        return self.sweeper.failures_total

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        for service in self._services:
            service.on_failure(callback)

    async def state(self, segment_id: int) -> StorageState | None:
        async with self._changing(segment_id):
            return _state_of(await self._manifests.load(segment_id))

    async def settled_state(self, segment_id: int, known_length: int) -> StorageState | None:
        async with self._changing(segment_id):
            view = await self._manifests.load(segment_id)
            if view.length > known_length or view.is_sealed:
                await self._settle(view)
            return _state_of(view)

    async def _settle(self, view: SegmentView) -> None:
        """Store the state of a segment that exists again, unless it is sure to stay: manifests of other states, put
        without an answer by this owner or an earlier one, may come later and count more than the one that was found."""
        if view.exists and not self._manifests.is_settled(view):
            async with self._journal.noted(view.segment_id):
                await self._manifests.commit(view, Change())

    async def write(self, segment_id: int, offset: int, data: Sequence[Buffer], sequence: int | None = None) -> None:
        length = sum(len(buffer) for buffer in data)
        if length > write_bytes_max:
            raise InvalidArgument(f"segment {segment_id}: a write of {length} bytes exceeds {write_bytes_max}")
        async with self._changing(segment_id):
            view = await self._live_or_new(segment_id)
            if view.is_sealed:
                raise SegmentSealed(_label(segment_id))
            if offset != view.length:
                raise BadOffset(_label(segment_id), view.length, offset)
            if not length and view.exists:
                return await self._settle(view)
            async with self._journal.noted(segment_id):
                await self._write(view, data, length, sequence)
            self.compactor.consider(view)

    async def _write(self, view: SegmentView, data: Sequence[Buffer], length: int, sequence: int | None) -> None:
        added: tuple[ChunkRef, ...] = ()
        entry: Entry | None = None
        if not length:
            await self._marks.cover(sequence)
        elif self._manifests.is_entry_length(length):
            await self._marks.cover(sequence)
            chunk, entry = await self._manifests.new_entry(view.segment_id, data)
            added = (chunk,)
        else:
            added = (await self._put_chunk_and_mark(view.segment_id, data, sequence),)
            failpoint(WRITE_CHUNK_STORED)
        await self._manifests.commit(view, Change(add=added), entry)
        failpoint(WRITE_MANIFEST_STORED)

    async def _put_chunk_and_mark(self, segment_id: int, data: Sequence[Buffer], sequence: int | None) -> ChunkRef:
        """Put a chunk, and beside it the mark that must be stored before the manifest that lists it."""
        chunk, marked = await asyncio.gather(
            self._manifests.put_chunk(segment_id, data), self._marks.cover(sequence), return_exceptions=True
        )
        try:
            if isinstance(chunk, BaseException):
                raise chunk
            if marked is not None:
                self._discard_chunks([chunk])
                raise marked
            return chunk
        finally:
            del chunk, marked  # errors have this frame, with the data that was to be stored

    async def seal(self, segment_id: int, sequence: int | None = None) -> None:
        async with self._changing(segment_id):
            view = await self._live_or_new(segment_id)
            if view.is_sealed:
                return await self._settle(view)
            async with self._journal.noted(segment_id):
                await self._marks.cover(sequence)
                await self._manifests.commit(view, Change(seal=True))

    async def truncate(self, segment_id: int, offset: int, sequence: int | None = None) -> None:
        async with self._changing(segment_id):
            view = await self._live_or_new(segment_id)
            if offset <= view.start_offset:
                return await self._settle(view)
            if offset > view.length and view.is_sealed:
                raise BadOffset(_label(segment_id), view.length, offset)
            count = view.chunks_below(offset)
            dropped, left = view.chunks[:count], itertools.islice(view.chunks, count, None)
            async with self._journal.noted(segment_id, *origins(segment_id, dropped)):
                await self._marks.cover(sequence)
                names = await self._owners.names(segment_id, dropped, left)
                await self._manifests.commit(view, Change(drop_front=count, start_offset=offset))
                failpoint(TRUNCATE_MANIFEST_STORED)
                self._discard_chunks(dropped)
                self.garbage.discard(names)

    async def concat(self, target_id: int, offset: int, source_id: int, sequence: int | None = None) -> None:
        check(target_id != source_id, "a segment cannot join itself", segment=target_id)
        first, second = sorted((target_id, source_id))
        async with self._changing(first), self._changing(second):
            source = await self._manifests.view(source_id)
            target = await self._live_or_new(target_id)
            if not source.exists:
                if target.length < offset:
                    raise BadOffset(_label(target_id), target.length, offset)
                return await self._settle(target)
            if source.start_offset:
                raise UnsupportedOperation(
                    f"segment {source_id} was truncated at {source.start_offset}, it cannot join"
                )
            if target.length < offset or offset < target.length < offset + source.length:
                raise BadOffset(_label(target_id), target.length, offset)
            moved_from = origins(source_id, source.chunks) - {target_id}
            async with self._journal.noted(target_id, source_id, *moved_from):
                await self._marks.cover(sequence)
                if target.length < offset + source.length:
                    await self._take_over(target, source)
                else:
                    await self._settle(target)
                await self._hand_over(source, target_id)

    async def _take_over(self, target: SegmentView, source: SegmentView) -> None:
        if target.is_sealed:
            raise SegmentSealed(_label(target.segment_id))
        moved = tuple(source.chunks)
        self._manifests.handed_over.add(source.segment_id)
        with self.sweeper.moving([chunk.id for chunk in moved]):
            await self.garbage.pass_barrier()  # so every later owner sees all of the source: nothing of it is garbage
            await self._owners.announce(target.segment_id, moved)
            await self._manifests.commit(target, Change(add=moved))
        failpoint(CONCAT_TARGET_STORED)

    async def _hand_over(self, source: SegmentView, target_id: int) -> None:
        """The source lets go of its chunks, once every later owner is sure to see that the target has them."""
        await self.garbage.pass_barrier()
        failpoint(CONCAT_BARRIER_PASSED)
        names = await self._owners.names(source.segment_id, source.chunks)
        replaced = await self._manifests.replace(source, Change(delete=True, merged_into=target_id))
        self._manifests.handed_over.discard(source.segment_id)
        failpoint(CONCAT_SOURCE_STORED)
        self._discard_tombstone(source, [*names, *replaced])

    async def delete(self, segment_id: int, sequence: int | None = None) -> None:
        async with self._changing(segment_id):
            try:
                view = await self._manifests.view(segment_id)
            except SegmentDamaged:
                return await self._delete_damaged(segment_id, sequence)
            if view.name is None:
                return
            others = origins(segment_id, view.chunks)
            if view.is_dangling:
                others = await self._owners.origins_of(segment_id)
            async with self._journal.noted(segment_id, *others, is_lasting=view.is_dangling):
                names = await self._owners.names(segment_id, view.chunks)
                if not view.is_deleted:
                    await self._marks.cover(sequence)
                    names += await self._manifests.replace(view, Change(delete=True))
                    failpoint(DELETE_TOMBSTONE_STORED)
                self._discard_tombstone(view, names)

    async def _delete_damaged(self, segment_id: int, sequence: int | None) -> None:
        """Put a tombstone above manifests that cannot be read. What they list is not known here: the sweeps of later
        owners find it, chunks and manifests, and need read none of these. Tombstones go behind what a look finds."""
        await self.garbage.pass_barrier()  # what a later owner deleted looks like damage
        others = await self._owners.origins_of(segment_id)
        async with self._journal.noted(segment_id, *others, is_lasting=True):
            await self._marks.cover(sequence)
            await self._manifests.commit(SegmentView(segment_id), Change(delete=True))
            self._manifests.forget(segment_id)  # the next one that asks has to look for the others

    async def read(self, segment_id: int, offset: int, length: int) -> Buffer:
        check(length >= 0 and offset >= 0, "not a range", offset=offset, length=length)
        seen: ManifestName | None = None
        for _ in range(read_attempts_max):
            view = self._manifests.cached(segment_id)
            if view is None or view.is_dangling or view.name == seen:
                async with self._changing(segment_id):
                    view = await self._manifests.load(segment_id)
            pieces = self._pieces(view, offset, length)
            try:
                return await self._fetch(segment_id, pieces)
            except SegmentNotFound as error:
                if view.name == seen:
                    raise SegmentDamaged(
                        segment_id, f"{_label(segment_id)}, offset {offset}: chunk {error.segment} is missing; {REMEDY}"
                    ) from error
                seen = view.name
        raise SegmentDamaged(segment_id, f"{_label(segment_id)}: its chunks keep vanishing while they are read")

    def block_around(self, segment_id: int, offset: int) -> tuple[int, int] | None:
        view = self._manifests.cached(segment_id)
        if view is None or not view.exists or not view.start_offset <= offset < view.length:
            return None
        return view.block_around(offset)

    def _pieces(self, view: SegmentView, offset: int, length: int) -> list[tuple[ChunkRef, int, int]]:
        label = _label(view.segment_id)
        if view.is_dangling:
            raise SegmentDamaged(
                view.segment_id, f"{label}: manifest {view.name} needs another one that is missing; {REMEDY}"
            )
        if not view.exists:
            raise SegmentNotFound(label)
        if offset < view.start_offset:
            raise SegmentTruncated(label, view.start_offset, offset)
        if offset + length > view.length:
            raise BadOffset(label, view.length, offset + length)
        return list(view.locate(offset, length))

    async def _fetch(self, segment_id: int, pieces: Sequence[tuple[ChunkRef, int, int]]) -> Buffer:
        whole = unfilled(sum(length for _, _, length in pieces))
        ends = itertools.accumulate(length for _, _, length in pieces)
        reads = [
            (chunk, offset, whole[end - length : end])
            for (chunk, offset, length), end in zip(pieces, ends, strict=True)
        ]
        for first in range(0, len(reads), read_pieces_at_once_max):
            batch = reads[first : first + read_pieces_at_once_max]
            await all_ended(self._reader.read_into(segment_id, *read) for read in batch)
        return whole.toreadonly()

    async def _live_or_new(self, segment_id: int) -> SegmentView:
        view = await self._manifests.view(segment_id)
        return view if view.exists else SegmentView(segment_id)

    def _discard_chunks(self, chunks: Sequence[ChunkRef]) -> None:
        self.garbage.discard([self.layout.chunk(chunk.id) for chunk in chunks])

    def _discard_tombstone(self, view: SegmentView, replaced: Sequence[str]) -> None:
        """The chunks it still lists first, then what it replaced, and the tombstone itself last, so that a crash leaves
        something to find."""
        check(view.is_deleted and view.name is not None, "not a tombstone", segment=view.segment_id)
        names = [*(self.layout.chunk(chunk.id) for chunk in view.chunks), *replaced]
        if view.name is not None:
            names.append(self.layout.manifest(view.name))
        self.garbage.discard(names)
        self._manifests.forget(view.segment_id)

    @contextlib.asynccontextmanager
    async def _changing(self, segment_id: int) -> AsyncIterator[None]:
        """Hold the segment's lock, as every change and every load must."""
        if self._closed:
            raise ContainerOffline("Tier 2 of this container is closed here")
        async with self._manifests.lock(segment_id):
            yield


def _state_of(view: SegmentView) -> StorageState | None:
    return StorageState(view.segment_id, view.start_offset, view.length, view.is_sealed) if view.exists else None


def _label(segment_id: int) -> str:
    return f"segment {segment_id} in Tier 2"
