"""Looks keys up in runs, and walks over several runs at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Sequence

from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.sorted_runs.key_filter import may_contain
from segment_service.sorted_runs.map_manifest import Run, RunFile
from segment_service.sorted_runs.map_objects import MapObjects
from segment_service.sorted_runs.run_format import RunBlock

Entries = tuple[list[bytes], list[bytes | None]]
"""Keys in order, each with its value, ``None`` for a tombstone."""


def file_of(run: Run, key: bytes) -> RunFile | None:
    """The only file of the run that can have the key."""
    position = bisect_right(run.files, key, key=lambda file: file.first_key) - 1
    if position < 0 or run.files[position].last_key < key:
        return None
    return run.files[position]


def is_surely_absent(objects: MapObjects, runs: Sequence[Run], key: bytes) -> bool:
    """Whether the filters that are in memory prove that no run has the key."""
    for run in runs:
        file = file_of(run, key)
        if file is None:
            continue
        tail = objects.cached_tail(file)
        if tail is None or may_contain(tail.filter, key):
            return False
    return True


async def look_up(objects: MapObjects, runs: Sequence[Run], key: bytes) -> bytes | None:
    """The newest value of the key. ``SegmentNotFound`` if an object is missing."""
    files = [file for run in runs if (file := file_of(run, key)) is not None]
    if any(objects.cached_tail(file) is None for file in files):
        await all_ended(map(objects.tail, files))
    for file in files:
        tail = await objects.tail(file)
        if not may_contain(tail.filter, key):
            continue
        number = bisect_right(tail.first_keys, key) - 1
        block = await objects.block(file, tail.places[number])
        position = bisect_left(block.keys, key)
        if position < len(block.keys) and block.keys[position] == key:
            return block.values[position]
    return None


class _Cursor:
    """Walks over one run, a block at a time. Memory: a block, the tail of a file, and the bytes read ahead."""

    def __init__(self, objects: MapObjects, run: Run, ahead_bytes: int, end: bytes | None) -> None:
        """``ahead_bytes``: read at a time, beside the cache; 0 for single blocks, through it. ``end``: blocks that
        begin there or behind it are not read."""
        self._objects = objects
        self._end = end
        self._files = run.files
        self._ahead_bytes = ahead_bytes
        self._ahead: memoryview = memoryview(b"")
        self._ahead_offset = 0
        self._file = 0
        self._number = 0
        self._block: RunBlock | None = None
        self._begin = 0

    async def seek(self, first: bytes) -> None:
        """Stand before the first key that is not below this one."""
        self._file = bisect_left(self._files, first, key=lambda file: file.last_key)
        if self._file == len(self._files) or self._is_behind(self._files[self._file].first_key):
            return
        tail = await self._objects.tail(self._files[self._file])
        self._number = max(bisect_right(tail.first_keys, first) - 1, 0)
        await self._load()
        if self._block is not None:
            self._begin = bisect_left(self._block.keys, first)
            if self._begin == len(self._block.keys):
                await self._next()

    @property
    def last_key(self) -> bytes | None:
        """The last key at hand; ``None`` at the end."""
        return None if self._block is None else self._block.keys[-1]

    async def take(self, bound: bytes) -> Entries:
        """The entries at hand whose keys are not above the bound."""
        block = self._block
        if block is None:
            return [], []
        begin, end = self._begin, bisect_right(block.keys, bound)
        if end <= begin:
            return [], []
        if end == len(block.keys):
            await self._next()
        else:
            self._begin = end
        return block.keys[begin:end], block.values[begin:end]

    async def _next(self) -> None:
        tail = await self._objects.tail(self._files[self._file])
        self._number += 1
        if self._number == len(tail.places):
            self._file, self._number = self._file + 1, 0
            self._ahead, self._ahead_offset = memoryview(b""), 0  # what was read lies in the file before
        await self._load()

    async def _load(self) -> None:
        self._block, self._begin = None, 0
        if self._file == len(self._files) or self._is_behind(self._files[self._file].first_key):
            return
        file = self._files[self._file]
        tail = await self._objects.tail(file)
        if self._is_behind(tail.first_keys[self._number]):
            return
        if self._ahead_bytes:
            self._block = await self._load_ahead(file, tail.places)
        else:
            self._block = await self._objects.block(file, tail.places[self._number])

    def _is_behind(self, key: bytes) -> bool:
        return self._end is not None and key >= self._end

    async def _load_ahead(self, file: RunFile, places: Sequence[tuple[int, int]]) -> RunBlock:
        offset, length = places[self._number]
        begin = offset - self._ahead_offset
        if begin + length > len(self._ahead):
            last = bisect_right(places, offset + self._ahead_bytes, lo=self._number + 1, key=sum) - 1
            self._ahead_offset, begin = offset, 0
            self._ahead = memoryview(await self._objects.read(file, offset, sum(places[last]) - offset))
        return await self._objects.decoded_block(file, places[self._number], self._ahead[begin : begin + length])


async def walk(
    objects: MapObjects,
    runs: Sequence[Run],
    first: bytes,
    slices: TimeSlices,
    *,
    end: bytes | None = None,
    ahead_bytes: int = 0,
) -> AsyncGenerator[Entries]:
    """All entries from ``first`` on, the newest of each key, tombstones too, in pieces of about a block for each run.

    ``runs``: newest first. ``end``: only keys below it come, and no block behind it is read. ``ahead_bytes``: what is
    read of all runs at a time, in equal parts and beside the cache; with 0 a block at a time, which stays in the cache.
    """
    cursors = [_Cursor(objects, run, ahead_bytes // max(len(runs), 1), end) for run in reversed(runs)]
    await all_ended(cursor.seek(first) for cursor in cursors)
    while True:
        ends = [cursor.last_key for cursor in cursors if cursor.last_key is not None]
        if not ends:
            return
        bound = min(ends)
        entries: dict[bytes, bytes | None] = {}
        parts = 0
        for cursor in cursors:  # oldest first: newer ones replace
            keys, values = await cursor.take(bound)
            if keys:
                parts += 1
                entries.update(zip(keys, values, strict=True))
        keys = sorted(entries) if parts > 1 else list(entries)
        if end is not None and bound >= end:
            keys = keys[: bisect_left(keys, end)]
            yield keys, [entries[key] for key in keys]
            return
        yield keys, [entries[key] for key in keys]
        await slices.step()
