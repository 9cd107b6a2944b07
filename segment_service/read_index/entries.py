"""Sorts the entries of one segment: each says which stretch of it lies in which cache block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pravega_common.invariants import check
from segment_service.contracts.cache_entry import CacheEntry, EntryOwner, Origin
from segment_service.contracts.cache_storage import CacheAddress


class IndexEntry(CacheEntry):
    """Bytes [offset, offset + length) of a segment are the first ``length`` bytes of a cache block."""

    __slots__ = ("length", "offset")

    def __init__(
        self,
        owner: EntryOwner,
        address: CacheAddress,
        generation: int,
        offset: int,
        length: int,
        origin: Origin = Origin.APPENDED,
    ) -> None:
        super().__init__(owner, address, generation, origin)
        self.offset = offset
        self.length = length

    @property
    def end(self) -> int:
        return self.offset + self.length


class EntryList:
    """Entries ordered by offset, never overlapping; gaps are bytes that are only in Tier 2.

    Two parallel lists and bisection: adding at the end, which is what appends do, costs nothing extra.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._entries: list[IndexEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[IndexEntry]:
        return iter(self._entries)

    @property
    def end(self) -> int:
        """The end of the last entry; 0 without entries."""
        return self._entries[-1].end if self._entries else 0

    def add(self, entry: IndexEntry) -> None:
        position = bisect_left(self._offsets, entry.offset) if entry.offset < self.end else len(self._entries)
        after = self._entries[position] if position < len(self._entries) else None
        before = self._entries[position - 1] if position else None
        check(after is None or entry.end <= after.offset, "entries overlap", offset=entry.offset, length=entry.length)
        check(before is None or before.end <= entry.offset, "entries overlap", offset=entry.offset)
        self._offsets.insert(position, entry.offset)
        self._entries.insert(position, entry)

    def remove(self, entry: IndexEntry) -> None:
        position = bisect_left(self._offsets, entry.offset)
        check(
            position < len(self._entries) and self._entries[position] is entry,
            "an entry to remove is not in the index",
            offset=entry.offset,
        )
        del self._offsets[position]
        del self._entries[position]

    def covering(self, offset: int) -> IndexEntry | None:
        """The entry that holds the byte at ``offset``."""
        position = bisect_right(self._offsets, offset) - 1
        if position < 0:
            return None
        entry = self._entries[position]
        return entry if offset < entry.offset + entry.length else None

    def run(self, offset: int, end: int) -> Iterator[IndexEntry]:
        """Entries that hold [offset, end) without a gap, from the one that holds ``offset``; stops at the first gap.

        The list must not change while it is iterated.
        """
        position = bisect_right(self._offsets, offset) - 1
        if position < 0:
            return
        for index in range(position, len(self._entries)):
            entry = self._entries[index]
            if not entry.offset <= offset < entry.offset + entry.length:
                return
            yield entry
            offset = entry.offset + entry.length
            if offset >= end:
                return

    def starting_from(self, offset: int) -> list[IndexEntry]:
        """Entries that hold a byte at or after ``offset``."""
        position = bisect_right(self._offsets, offset) - 1
        if position < 0 or self._entries[position].end <= offset:
            position += 1
        return self._entries[position:]

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The stretches of [start, end) that no entry holds, as (start, end)."""
        found: list[tuple[int, int]] = []
        position = max(0, bisect_right(self._offsets, start) - 1)
        while start < end and position < len(self._entries):
            entry = self._entries[position]
            if entry.offset >= end:
                break
            if start < entry.offset:
                found.append((start, entry.offset))
            start = max(start, entry.end)
            position += 1
        if start < end:
            found.append((start, end))
        return found

    def gap_around(self, offset: int) -> tuple[int, int | None]:
        """Begin and end of the gap that ``offset`` lies in (end ``None``: no entry follows)."""
        position = bisect_right(self._offsets, offset)
        start = self._entries[position - 1].end if position else 0
        return start, (self._offsets[position] if position < len(self._offsets) else None)

    def pop_below(self, offset: int) -> list[IndexEntry]:
        """Take out the entries that lie wholly below ``offset``."""
        position = bisect_right(self._offsets, offset)
        if position and self._entries[position - 1].end > offset:
            position -= 1
        taken = self._entries[:position]
        del self._offsets[:position]
        del self._entries[:position]
        return taken

    def pop_all(self) -> list[IndexEntry]:
        taken = self._entries
        self._offsets, self._entries = [], []
        return taken
