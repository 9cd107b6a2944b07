"""Joins runs of small chunks at the end of a segment, so that a trickle of data does not become a pile of objects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from pravega_common.errors import Fenced, Outcome, PravegaError, SegmentDamaged
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from pravega_common.services.base import Service
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_storage import OnDamage
from segment_service.storage.change_journal import ChangeJournal
from segment_service.storage.chunk_names import Layout
from segment_service.storage.chunk_reader import ChunkReader
from segment_service.storage.foreign_owners import ForeignOwners, origins
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest import ChunkRef
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_view import Change, SegmentView

COMPOSED = register("storage.compact.composed")
COMPACT_MANIFEST_STORED = register("storage.compact.manifest_stored")

small_chunk_bytes = 1 << 20
"""Chunks from this size on are left as they are."""

joined_bytes_max = 16 << 20
"""Size of what a run becomes, at most."""

run_chunks_min = 16
"""Shorter runs are not worth it. The service waits for up to as many chunks more, by the number of the segment: so
segments that grow alike are not due at the same moment."""

run_chunks_max = 128
"""Chunks joined at once; also bounds what looking for a run costs per flush."""

waiting_segments_max = 10_000
"""Segments that wait for compaction; more are considered again at their next flush."""

reads_at_once_max = 8
"""Chunks of a run that are read at the same time."""

rest_ratio = 3
"""The service rests behind each compaction for that many times as long as it took: it can wait, and appends and commits
cannot. Runs grow to ``run_chunks_max`` meanwhile, which costs hardly more when they are joined."""

rest_max_s = 1.0
"""The longest rest."""

newer_chunks_max = 10_000
"""Chunks written while a run is being joined; with more of them the attempt is given up."""


def run_to_join(chunks: Sequence[ChunkRef]) -> int:
    """The number of chunks at the end that should become one; 0 if all stay.

    A chunk is joined only with as many bytes behind it as it has itself, so a byte is rewritten at most a logarithmic
    number of times.
    """
    count = 0
    total = 0
    for chunk in reversed(chunks[-run_chunks_max:]):
        if chunk.length >= small_chunk_bytes or total + chunk.length > joined_bytes_max:
            break
        count += 1
        total += chunk.length
    while count:
        first = chunks[-count].length
        if first <= total - first:
            break
        total -= first
        count -= 1
    return count if count >= run_chunks_min else 0


class Compactor(Service):
    """Works through the segments whose last flush left a run, one at a time, and rests between them."""

    def __init__(
        self,
        container_id: int,
        reader: ChunkReader,
        manifests: ManifestStore,
        journal: ChangeJournal,
        owners: ForeignOwners,
        layout: Layout,
        garbage: GarbageCollector,
        clock: Clock,
    ) -> None:
        super().__init__(f"storage-compaction-{container_id}")
        self._clock = clock
        self._journal = journal
        self._owners = owners
        self._reader = reader
        self._layout = layout
        self._manifests = manifests
        self._garbage = garbage
        self._waiting: dict[int, None] = {}
        self._damaged: set[int] = set()
        """Segments with a damaged run; left to the next owner."""
        self.on_damage: OnDamage = lambda segment_id, offset, length, error: None
        self._wake = asyncio.Event()

    async def on_start(self) -> None:
        self.spawn(self._run(), "compact")

    def consider(self, view: SegmentView) -> None:
        """Note the segment if it has a run to join."""
        if view.segment_id in self._damaged:
            return
        wanted = run_chunks_min + view.segment_id % run_chunks_min
        if len(self._waiting) < waiting_segments_max and run_to_join(view.chunks) >= wanted:
            self._waiting[view.segment_id] = None
            self._wake.set()

    async def compact_waiting(self) -> None:
        """Work through the segments that wait, without a rest."""
        while self._waiting:
            await self._compact_next()

    async def _compact_next(self) -> None:
        """Compact the segment that has waited longest. A failure puts it off until its next flush."""
        segment_id = next(iter(self._waiting))
        del self._waiting[segment_id]
        try:
            await self.compact(segment_id)
        except PravegaError as error:
            if error.outcome is Outcome.FENCED:
                raise
            self.log.info("compaction was put off", segment=segment_id, error=str(error))

    async def compact(self, segment_id: int) -> bool:
        """Join the run at the end of the segment, if it still has one. The segment is not locked meanwhile.

        Only for a segment that this owner has written to: one that an earlier owner left in the middle of a merge may
        list chunks that belong to its target already, and no operation writes to it any more.
        """
        view = self._manifests.cached(segment_id)
        count = run_to_join(view.chunks) if view is not None and view.exists else 0
        if view is None or not count:
            return False
        run = view.chunks[-count:]
        start, length = view.starts[-count], sum(chunk.length for chunk in run)
        try:
            pieces = await self._read(segment_id, run)
        except SegmentDamaged as error:
            self._damaged.add(segment_id)
            self.on_damage(segment_id, start, length, error)
            raise
        async with self._journal.noted(segment_id, *origins(segment_id, run)):
            return await self._replace(segment_id, run, pieces)

    async def _replace(self, segment_id: int, run: Sequence[ChunkRef], pieces: Sequence[Buffer]) -> bool:
        """Put the joined chunk, and let it take the place of the run, if that is still there."""
        joined = await self._manifests.put_chunk(segment_id, pieces)
        names: list[str] = []
        replaced = False
        try:
            failpoint(COMPOSED)
            async with self._manifests.lock(segment_id):
                current = await self._manifests.view(segment_id)
                change = _replacement(current, run, joined)
                if change is not None and segment_id not in self._manifests.handed_over:
                    kept = itertools.islice(current.chunks, len(current.chunks) - change.drop_back)
                    names = await self._owners.names(segment_id, run, itertools.chain(kept, change.add))
                    replaced = True  # from here on a manifest may name it
                    await self._manifests.commit(current, change)
        finally:
            if not replaced:
                self._garbage.discard([self._layout.chunk(joined.id)])
        if replaced:
            failpoint(COMPACT_MANIFEST_STORED)
            self._garbage.discard([*(self._layout.chunk(chunk.id) for chunk in run), *names])
        return replaced

    async def _read(self, segment_id: int, run: Sequence[ChunkRef]) -> list[Buffer]:
        """The bytes of all chunks of a run, checked: a wrong one must not get a new checksum."""
        pieces: list[Buffer] = []
        for first in range(0, len(run), reads_at_once_max):
            batch = run[first : first + reads_at_once_max]
            pieces += await all_ended(self._reader.read(segment_id, chunk) for chunk in batch)
        return pieces

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                began_s = self._clock.monotonic_s()
                try:
                    await self._compact_next()
                except Fenced as error:
                    self.log.warning("compaction ends", reason=str(error))
                    return
                taken_s = self._clock.monotonic_s() - began_s
                await self._clock.sleep(min(rest_ratio * taken_s, rest_max_s))


def _replacement(view: SegmentView, run: Sequence[ChunkRef], joined: ChunkRef) -> Change | None:
    """The change that puts the joined chunk where the run is, with what was written since behind it; ``None`` if the
    run is not whole any more (truncated, deleted, merged away)."""
    if not view.exists:
        return None
    newer = 0
    while newer <= newer_chunks_max and newer < len(view.chunks) and view.chunks[-1 - newer] != run[-1]:
        newer += 1
    end = len(view.chunks) - newer
    if end < len(run) or view.chunks[end - len(run) : end] != list(run):
        return None
    return Change(drop_back=len(run) + newer, add=(joined, *view.chunks[end:]))
