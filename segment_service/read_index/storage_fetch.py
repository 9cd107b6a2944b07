"""Fetches bytes from Tier 2 into the cache: once for all readers of the same missing bytes, with read-ahead."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pravega_common.errors import (
    BadOffset,
    ContainerOffline,
    PravegaError,
    SegmentDamaged,
    SegmentNotFound,
    SegmentTruncated,
    Unavailable,
)
from pravega_common.invariants import check, unreachable
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import CheckOwner
from segment_service.contracts.second_level_cache import SecondLevelCache, SegmentKey
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.spawn import Spawn
from segment_service.metadata.quarantine import DamagedRange, Quarantine
from segment_service.read_index.fetch import Fetch, StoredRange
from segment_service.read_index.fetch_budget import FetchBudget
from segment_service.read_index.segment_read_index import SegmentReadIndex

"""``Service.spawn`` of the container: owns the fetches."""

fetch_alignment: Final = 64 * 1024
"""A fetch begins and ends with a block of Tier 2, or on multiples of this where those are short or not known, so that
close random reads share it."""
fetches_in_flight_max: Final = 16
"""Reads of Tier 2 at a time, for one container; further ones wait, read-ahead is left out."""
locate_attempts_max: Final = 4
"""How often bytes are looked for again when a merge moves them away under a fetch."""

_moved = (SegmentNotFound, BadOffset, SegmentTruncated)


class StorageFetcher:
    """The fetches of one container."""

    def __init__(
        self,
        storage: SegmentStorage,
        spawn: Spawn,
        quarantine: Quarantine,
        check_owner: CheckOwner,
        budget: FetchBudget,
        second_level: SecondLevelCache | None = None,
    ) -> None:
        self._quarantine = quarantine
        self._check_owner = check_owner
        self._storage = storage
        self._second_level = second_level
        self._spawn = spawn
        self._budget = budget
        self._slots = asyncio.Semaphore(fetches_in_flight_max)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.fetch_count = 0

    async def fetch(self, index: SegmentReadIndex, offset: int, end: int, run: int) -> memoryview:
        """Bytes from ``offset`` on, at least one, as many as one fetch brings; ``end`` says what the caller wants,
        ``run`` how many bytes before it were read in one piece: 0 for a random read.

        Raises ``SegmentNotFound``/``BadOffset``/``SegmentTruncated`` of Tier 2 if they are not where they should be
        (the caller looks at the metadata again), ``Unavailable`` and ``UnknownOutcome`` as they come, and
        ``SegmentDamaged`` if the very block of ``offset`` is damaged: what is whole is served. ``Fenced`` if a later
        owner may have changed what looks like damage.
        """
        if self._is_damaged(index):
            return memoryview(await self._load_block(index, offset))
        fetch = self._covering(index, offset) or self._start(index, offset, end, run)
        self._start_missing(index, fetch.end, end, run)
        try:
            data = await asyncio.shield(fetch.data)
        except SegmentDamaged:
            return memoryview(await self._load_block(index, offset))
        return memoryview(data)[offset - fetch.start :]

    def read_ahead(self, index: SegmentReadIndex, offset: int, run: int) -> None:
        """Start what a reader of ``run`` bytes in one piece up to ``offset`` will want next."""
        end = min(offset + self._budget.ahead_bytes(run), index.metadata.length)
        self._start_missing(index, offset, end, run)

    def _start_missing(self, index: SegmentReadIndex, offset: int, end: int, run: int) -> None:
        """Start fetches for what is neither cached nor on its way in [offset, end), as far as there is room."""
        if self._is_damaged(index):
            return
        longest = self._budget.fetch_bytes(run)
        while offset < end and len(self._tasks) < fetches_in_flight_max and self._budget.gate.has_room(longest):
            entry = index.entries.covering(offset)
            if entry is not None:
                offset = entry.end
                continue
            fetch = self._covering(index, offset)
            if fetch is None:
                if index.stored_at(offset) is None:
                    return
                fetch = self._start(index, offset, end, run)
            offset = fetch.end

    def close(self) -> None:
        """Give up all fetches; their readers get ``ContainerOffline``."""
        for task in self._tasks:
            task.cancel()

    @staticmethod
    def _covering(index: SegmentReadIndex, offset: int) -> Fetch | None:
        for fetch in index.fetches:
            if fetch.start <= offset < fetch.end:
                return fetch
        return None

    def _start(self, index: SegmentReadIndex, offset: int, end: int, run: int) -> Fetch:
        stored = index.stored_at(offset)
        if stored is None:
            unreachable("a byte is neither in the cache nor in Tier 2", segment=index.metadata, offset=offset)
        floor, ceiling = index.entries.gap_around(offset)
        floor = max(floor, index.metadata.start_offset)
        longest = self._budget.fetch_bytes(run)
        limit = offset + min(stored.length, longest)
        if ceiling is not None:
            limit = min(limit, ceiling)
        for other in index.fetches:
            if other.end <= offset:
                floor = max(floor, other.end)
            else:
                limit = min(limit, other.start)
        start = max(self._floor(stored, offset), floor)
        before = index.stored_at(start)
        if before is None or before.places[0][0] != stored.places[0][0] or before.length < offset - start:
            start = offset
        kept = self._kept_length(index, offset, stored)
        if kept:
            start, limit = offset, min(limit, offset + kept)
        wanted = self._end(stored, offset, offset + longest if run else end, longest)
        fetch = Fetch(start, max(offset + 1, min(limit, wanted)), is_scanned=run > 0)
        index.fetches.append(fetch)
        self.fetch_count += 1
        task = self._spawn(self._run(index, fetch), f"fetch-{index.metadata.segment_id}-{fetch.start}")
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, index, fetch))
        return fetch

    def _floor(self, stored: StoredRange, offset: int) -> int:
        """The start of a fetch of the byte at ``offset``: that of its block, or of short ones before it."""
        start, end = self._block(stored, offset, offset)
        if end - start < fetch_alignment:
            start, _ = self._block(stored, offset, start - start % fetch_alignment)
        return start

    def _end(self, stored: StoredRange, offset: int, end: int, longest: int) -> int:
        """The end of a fetch from ``offset`` on that is to bring the bytes up to ``end``. If that is too much for one
        fetch, it ends with a block, so that the next one reads nothing twice."""
        last = offset + longest
        stored_end = offset + stored.length
        if end < last:
            block_start, block_end = self._block(stored, offset, end - 1)
            if block_end - block_start >= fetch_alignment:
                return block_end
            return self._block(stored, offset, end + -end % fetch_alignment - 1)[1]
        if stored_end <= last:
            return stored_end
        block_start, _ = self._block(stored, offset, last)
        return block_start if block_start > offset else last

    def _block(self, stored: StoredRange, offset: int, position: int) -> tuple[int, int]:
        """The start and the end of the bytes that Tier 2 reads together with the one at ``position``, as far as is
        known; ``stored`` says where the one at ``offset`` is."""
        segment_id, place = stored.places[0]
        shift = place - offset
        block = self._storage.block_around(segment_id, position + shift) if position + shift >= 0 else None
        if block is None:
            start = position - position % fetch_alignment
            return start, start + fetch_alignment
        return block[0] - shift, block[1] - shift

    def _kept_length(self, index: SegmentReadIndex, offset: int, stored: StoredRange) -> int:
        """The number of bytes from ``offset`` on that the second level has in one piece."""
        if self._second_level is None:
            return 0
        for segment_id, place in (*stored.places, (index.metadata.segment_id, offset)):
            end = self._second_level.covered_to(SegmentKey(index.container_id, segment_id), place)
            if end is not None:
                return end - place
        return 0

    async def _read_kept(self, index: SegmentReadIndex, start: int, length: int, stored: StoredRange) -> bytes | None:
        if self._second_level is None:
            return None
        for segment_id, place in (*stored.places, (index.metadata.segment_id, start)):
            data = await self._second_level.read(SegmentKey(index.container_id, segment_id), place, length)
            if data is not None:
                return data
        return None

    async def _run(self, index: SegmentReadIndex, fetch: Fetch) -> None:
        try:
            async with self._slots, self._budget.gate.of(fetch.end - fetch.start):
                data = await self._load(index, fetch.start, fetch.end)
        except PravegaError as error:
            fetch.data.set_exception(error)
            return
        root, base = index.root()
        root.insert_fetched(base + fetch.start, data, is_scanned=fetch.is_scanned)
        fetch.data.set_result(data)

    def _ended(self, task: asyncio.Task[Any], index: SegmentReadIndex, fetch: Fetch) -> None:
        self._tasks.discard(task)
        index.fetches.remove(fetch)
        if not fetch.data.done():
            fetch.data.set_exception(ContainerOffline("the container stopped while bytes came from Tier 2"))

    def _is_damaged(self, index: SegmentReadIndex) -> bool:
        return bool(self._quarantine) and self._quarantine.reason(index.root()[0].metadata.segment_id) is not None

    async def _load_block(self, index: SegmentReadIndex, offset: int) -> Buffer:
        """The rest of the block that holds ``offset``, and nothing that may be damaged beside it."""
        stored = index.stored_at(offset)
        if stored is None:
            raise Unavailable(f"{index.metadata.name}: the bytes at {offset} moved while they were read")
        _, end = self._block(stored, offset, offset)
        async with self._slots:
            return await self._load(index, offset, min(end, offset + stored.length))

    async def _load(self, index: SegmentReadIndex, start: int, end: int) -> Buffer:
        """Read [start, end) wherever Tier 2 has it, following merges that happen meanwhile. A place that is damaged
        may be one that they moved away from: a late put brings back a manifest, and not what it needs."""
        failure: PravegaError | None = None
        stored: StoredRange | None = None
        for _ in range(locate_attempts_max):
            stored = index.stored_at(start)
            if stored is None:
                break
            kept = await self._read_kept(index, start, end - start, stored)
            if kept is not None:
                return kept
            damage: tuple[DamagedRange, SegmentDamaged] | None = None
            for segment_id, offset in stored.places:
                try:
                    data = await self._storage.read(segment_id, offset, end - start)
                except _moved as error:
                    failure = error
                    continue
                except SegmentDamaged as error:
                    damage = damage or (DamagedRange(segment_id, offset, end - start), error)
                    continue
                check(len(data) == end - start, "Tier 2 gave another length", wanted=end - start, got=len(data))
                return data
            if damage is not None and index.stored_at(start) == stored:
                await self._note_damage(index, *damage)
                raise damage[1]
        if failure is not None and stored is not None:
            await self._raise_if_lost(index, start, end, stored, failure)
        raise failure or Unavailable(f"{index.metadata.name}: bytes {start}..{end} are not in Tier 2")

    async def _raise_if_lost(
        self, index: SegmentReadIndex, start: int, end: int, stored: StoredRange, failure: PravegaError
    ) -> None:
        """``SegmentDamaged`` if bytes that Tier 2 does not have at any of their places are not on their way either."""
        name = index.metadata.name
        if self._must_be_there(index, start, stored):
            lost = SegmentDamaged(
                index.metadata.segment_id,
                f"segment {name}: Tier 2 does not have bytes {start}..{end}, it must have those up to "
                f"{index.metadata.storage_length} ({failure}): restore its objects from a copy",
            )
            await self._note_damage(index, DamagedRange(index.metadata.segment_id, start, end - start), lost)
            raise lost
        held = [self._quarantine.held_reason(segment_id) for segment_id, _ in stored.places]
        reason = next((reason for reason in held if reason is not None), None)
        if reason is not None:  # the storage writer looked too, and moves nothing
            await self._check_owner()
            raise SegmentDamaged(index.metadata.segment_id, f"segment {name}: bytes {start}..{end} are lost: {reason}")

    @staticmethod
    def _must_be_there(index: SegmentReadIndex, start: int, stored: StoredRange) -> bool:
        """Whether nothing explains that Tier 2 does not have the byte at ``start``: no merge, no truncation."""
        is_settled = not index.is_dropped and index.target is None and len(stored.places) == 1
        return is_settled and start >= index.metadata.start_offset and index.stored_at(start) == stored

    async def _note_damage(self, index: SegmentReadIndex, damaged: DamagedRange, error: SegmentDamaged) -> None:
        """Quarantine the segment, or raise what proves that it need not be damaged."""
        await self._check_owner()
        metadata = index.root()[0].metadata
        self._quarantine.add_unreadable(metadata.segment_id, metadata.name, damaged, str(error))
