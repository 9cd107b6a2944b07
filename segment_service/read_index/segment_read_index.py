"""Finds the bytes of one segment: in cache entries, or in Tier 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.invariants import check, unreachable
from segment_service.cache.manager import CacheManager
from segment_service.contracts.buffer import Buffer, kept_bytes
from segment_service.contracts.cache_entry import CacheEntry, Origin
from segment_service.contracts.cache_storage import CacheAddress, block_bytes_max, block_bytes_min
from segment_service.contracts.second_level_cache import SegmentKey
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.read_index.entries import EntryList, IndexEntry
from segment_service.read_index.fetch import Fetch, StoredRange
from segment_service.read_index.waiters import TailWaiters

merge_depth_max: Final = 8
"""How many merges may be stacked while Tier 2 has moved none of them (large event into transaction into stream: 2)."""


flushes_per_block: Final = 4
"""A block that is opened is made for as many times the bytes that the last flush brought to Tier 2: steady segments
hold memory in proportion to their rate."""
adopted_bytes_min: Final = block_bytes_max // 2
"""Bytes of an append from which on it may become a block without a copy."""
room_share: Final = 4
"""Room behind what a block has, up to this part of it, is not worth a copy."""
kept_share: Final = 16
"""Memory beside a received append that it keeps as a block, at most this part of it."""
idle_room_max: Final = 64 * 1024
"""Bytes that a segment may keep free behind its end while all that it has is in Tier 2."""


def _is_whole(data: Buffer) -> bool:
    """Whether these bytes are a block of their own, and keep little memory beside them."""
    length = len(data)
    return adopted_bytes_min <= length <= block_bytes_max and kept_bytes(data) <= length + length // kept_share


@dataclass(slots=True)
class MergedPart:
    """[offset, offset + length) of the target came from ``source``, and Tier 2 has not moved it yet."""

    offset: int
    length: int
    source: SegmentReadIndex


class SegmentReadIndex:
    """The index of one segment, all of it synchronous.

    A segment that was merged away keeps its index, without entries, as a *ghost* below its target until Tier 2 has
    moved the bytes: it says what of it Tier 2 holds under the source's id.
    """

    def __init__(self, container_id: int, metadata: SegmentMetadata, cache: CacheManager) -> None:
        self.container_id = container_id
        self.metadata = metadata
        self.waiters = TailWaiters()
        self.fetches: list[Fetch] = []
        self.entries = EntryList()
        self.parts: list[MergedPart] = []
        self.target: SegmentReadIndex | None = None
        self.is_dropped = False
        self._target_offset = 0
        self._cache = cache
        self._tail: IndexEntry | None = None
        self._next_capacity = block_bytes_min
        self._marked = 0
        self._stored_before = metadata.storage_length
        self._read_ends: dict[int, int] = {}

    # --- where this segment's bytes live -----------------------------------------------------------------------------

    def root(self) -> tuple[SegmentReadIndex, int]:
        """The index that has this segment's entries, and where this segment begins in it."""
        index, base = self, 0
        while index.target is not None:
            base += index._target_offset
            index = index.target
        return index, base

    def stored_at(self, offset: int) -> StoredRange | None:
        """The place of the byte at ``offset`` in Tier 2; ``None`` if it is only in the cache (and Tier 1)."""
        if offset < self.metadata.storage_length:
            return StoredRange(((self.metadata.segment_id, offset),), self.metadata.storage_length - offset)
        for part in self.parts:
            if part.offset <= offset < part.offset + part.length:
                inner = part.source.stored_at(offset - part.offset)
                if inner is None:
                    return None
                length = min(inner.length, part.offset + part.length - offset)
                return StoredRange((*inner.places, (self.metadata.segment_id, offset)), length)
        return None

    def collect(self, offset: int, end: int, views: list[memoryview]) -> int:
        """Add views of the cached bytes from ``offset`` on, up to ``end``; returns where they stop."""
        cache = self._cache
        for entry in self.entries.run(offset, end):
            cache.touch(entry)
            within = offset - entry.offset
            length = min(entry.length - within, end - offset)
            views.append(cache.storage.get(entry.address, within, length))
            offset += length
        return offset

    def note_read(self, offset: int, end: int) -> int:
        """Remember where a read ended; returns how many bytes up to ``offset`` were read in one piece before it."""
        run = self._read_ends.pop(offset, 0)
        self._read_ends[end] = run + end - offset
        if len(self._read_ends) > readers_remembered_max:
            del self._read_ends[next(iter(self._read_ends))]
        return run

    # --- changes, in log order ---------------------------------------------------------------------------------------

    def append(self, offset: int, data: Sequence[Buffer]) -> None:
        """Copy the bytes behind the tail entry's block while it has room, then into new blocks. What fills most of the
        buffer that it was received in becomes a block as it is."""
        check(offset >= self.entries.end, "an append below what is there", offset=offset, end=self.entries.end)
        if len(data) == 1 and _is_whole(data[0]):
            self._adopt(offset, data[0])
            return
        remaining = sum(map(len, data))
        if remaining == 0:
            return
        total = remaining
        tail = self._tail
        if tail is not None and tail.end == offset:
            room = self._cache.storage.room(tail.address)
            if room:
                head, data = (data, ()) if remaining <= room else split(data, room)
                length = min(remaining, room)
                self._cache.forbid_eviction(tail)
                self._cache.storage.extend(tail.address, head)
                tail.length += length
                offset, remaining = offset + length, remaining - length
                self._settle(tail)
        while remaining:
            length = min(remaining, block_bytes_max)
            head, data = (data, ()) if remaining == length else split(data, length)
            self._open_block(offset, head, length)
            offset, remaining = offset + length, remaining - length
        self._cache.inserted(total)

    def _adopt(self, offset: int, data: Buffer) -> None:
        if self._tail is not None:
            self._free_room(self._tail, self._tail.length // room_share)
        self._begin_tail(self._cache.storage.adopt(data), offset, len(data))
        self._cache.inserted(len(data))

    def _open_block(self, offset: int, data: Sequence[Buffer], length: int) -> None:
        capacity = max(self._next_capacity, length)
        self._next_capacity = min(2 * capacity, block_bytes_max)
        self._begin_tail(self._cache.storage.insert(data, capacity), offset, length)

    def _begin_tail(self, address: CacheAddress, offset: int, length: int) -> None:
        self._tail = IndexEntry(self, address, self._cache.generation, offset, length)
        self.entries.add(self._tail)
        self._settle(self._tail)

    def _settle(self, entry: IndexEntry) -> None:
        """After a fill: recently used, and evictable only if Tier 2 has it already (a replay after a crash)."""
        self._cache.touch(entry)
        if entry.end <= self.metadata.storage_length:
            self._cache.allow_eviction(entry)

    def insert_fetched(self, offset: int, data: Buffer, *, is_scanned: bool) -> None:
        """Keep bytes that came from Tier 2, for a sequential reader if ``is_scanned``, as far as no entry holds them by
        now."""
        if self.is_dropped:
            return
        start = max(offset, self.metadata.start_offset)
        origin = Origin.SCANNED if is_scanned else Origin.READ
        for gap_start, gap_end in self.entries.gaps(start, offset + len(data)):
            is_whole = gap_end - gap_start == len(data)
            piece = data if is_whole else bytes(data[gap_start - offset : gap_end - offset])
            address, generation = self._cache.storage.adopt(piece), self._cache.generation
            length = gap_end - gap_start
            entry = IndexEntry(self, address, generation, gap_start, length, origin)
            self.entries.add(entry)
            self._cache.allow_eviction(entry)
        self._cache.inserted(len(data))

    def merge(self, offset: int, source: SegmentReadIndex, length: int) -> None:
        """Take over the source's entries at ``offset``; the source becomes a ghost of this segment."""
        check(offset >= self.entries.end, "a merge below what is there", offset=offset, end=self.entries.end)
        check(source.target is None and source is not self, "a segment was merged twice", source=source.metadata.name)
        for entry in source.entries.pop_all():
            check(entry.end <= length, "a merged entry beyond the source's length", end=entry.end, length=length)
            entry.offset += offset
            entry.owner = self
            self.entries.add(entry)
        source.target, source._target_offset = self, offset
        source._tail = self._tail = None
        self.parts.append(MergedPart(offset, length, source))

    def merge_completed(self, source: SegmentReadIndex) -> None:
        """Tier 2 has the source's bytes under this segment's id: forget the ghost."""
        self.parts = [part for part in self.parts if part.source is not source]

    def mark_stored(self) -> None:
        """Declare evictable what lies below this segment's storage length by now, and fit the tail to its rate."""
        root, base = self.root()
        stored_end = base + self.metadata.storage_length
        for entry in root.entries.starting_from(base + self._marked):
            if entry.end > stored_end:
                break
            self._cache.allow_eviction(entry)
            self._marked = entry.end - base
        brought = self.metadata.storage_length - self._stored_before
        self._stored_before = self.metadata.storage_length
        if root is self and brought:
            self._fit_tail(flushes_per_block * brought)

    def _fit_tail(self, capacity: int) -> None:
        """Let the next block have this capacity, and move the tail to a block of its size when it has more room than
        that, or more than an idle segment may keep. Room that is small beside what is filled is not worth the copy."""
        self._next_capacity = min(max(capacity, block_bytes_min), block_bytes_max)
        tail = self._tail
        if tail is None:
            return
        room_max = min(self._next_capacity, idle_room_max) if tail.is_evictable else self._next_capacity
        self._free_room(tail, max(room_max, tail.length // room_share))

    def _free_room(self, tail: IndexEntry, room_max: int) -> None:
        """Move the tail to a block of its size if it has more room than this."""
        if self._cache.storage.room(tail.address) > room_max:
            self._cache.shrink(tail, tail.length)

    def truncate(self, offset: int) -> None:
        for entry in self.entries.pop_below(offset):
            self._drop_entry(entry)

    def drop(self) -> None:
        """The segment is gone, or leaves memory: no entry and no ghost stays."""
        self.is_dropped = True
        for entry in self.entries.pop_all():
            self._drop_entry(entry)
        self.parts = []

    def evicted(self, entry: CacheEntry) -> None:
        """The cache manager takes the entry's block; its bytes may be kept on the second level."""
        if not isinstance(entry, IndexEntry):
            unreachable("an entry of another kind in a read index")
        self.entries.remove(entry)
        self._forget_tail(entry)
        second_level = self._cache.second_level
        if second_level is not None:
            data = self._cache.storage.get(entry.address, 0, entry.length)
            second_level.offer(SegmentKey(self.container_id, self.metadata.segment_id), entry.offset, data)

    def ghosts(self) -> Iterator[SegmentReadIndex]:
        """The merged sources below this segment that Tier 2 has not moved, at all depths."""
        for part in self.parts:
            yield part.source
            yield from part.source.ghosts()

    def _drop_entry(self, entry: IndexEntry) -> None:
        self._forget_tail(entry)
        self._cache.drop(entry)

    def _forget_tail(self, entry: IndexEntry) -> None:
        if entry is self._tail:
            self._tail = None
            self._next_capacity = block_bytes_min


readers_remembered_max: Final = 32
"""Ends of recent reads kept for each segment, to tell sequential readers from random ones."""


def split(data: Sequence[Buffer], length: int) -> tuple[list[Buffer], list[Buffer]]:
    """The first ``length`` bytes of the joined buffers, and the rest, without a copy."""
    head: list[Buffer] = []
    for position, buffer in enumerate(data):
        if len(buffer) > length:
            view = memoryview(buffer)
            head.append(view[:length])
            return head, [view[length:], *data[position + 1 :]]
        head.append(buffer)
        length -= len(buffer)
    return head, []
