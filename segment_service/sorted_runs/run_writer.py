"""Writes entries that come in order as the files of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from pravega_common.invariants import check
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.sorted_runs.key_filter import add_keys, empty_filter
from segment_service.sorted_runs.map_manifest import Run, RunFile
from segment_service.sorted_runs.map_objects import MapObjects
from segment_service.sorted_runs.run_format import (
    Tail,
    block_body,
    block_bytes,
    block_checksum,
    block_overhead_bytes,
    checksum_bytes,
    encode_tail,
    entry_overhead_bytes,
)

FILE_STORED: Final = register("sorted_runs.file_stored")

file_bytes_max: Final = 8 << 20
"""Bytes of the blocks of one file, but for a last entry that is larger than the rest of it."""


class RunWriter:
    """``add`` in order, then ``finish``. Memory: one file."""

    def __init__(self, objects: MapObjects, slices: TimeSlices) -> None:
        self._objects = objects
        self._slices = slices
        self.files: list[RunFile] = []
        """What was stored so far, also when a later call fails."""
        self._file = _FileEncoder()
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._block_bytes = block_overhead_bytes
        self._last_key = b""

    async def add(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Some entries that follow the last ones; as few as a loop may be kept for."""
        check(not keys or keys[0] > self._last_key, "entries of a run are out of order", key=keys[:1])
        for key, value in zip(keys, values, strict=True):
            length = len(key) + entry_overhead_bytes + (len(value) if value is not None else 0)
            if self._block_bytes + length > block_bytes and self._keys:
                await self._end_block()
            self._keys.append(key)
            self._values.append(value)
            self._block_bytes += length
            self._last_key = key

    async def finish(self) -> Run | None:
        """The run; ``None`` without entries."""
        await self._end_block()
        await self._end_file()
        return Run(tuple(self.files)) if self.files else None

    async def _end_block(self) -> None:
        if not self._keys:
            return
        self._file.add(self._keys, self._values)
        self._keys, self._values, self._block_bytes = [], [], block_overhead_bytes
        await self._slices.step()
        if self._file.bytes + block_bytes > file_bytes_max:
            await self._end_file()

    async def _end_file(self) -> None:
        file, self._file = self._file, _FileEncoder()
        if not file.blocks:
            return
        await file.prepare(self._slices)
        self.files.append(await self._objects.put_file(file.encode_as))
        failpoint(FILE_STORED)


class _FileEncoder:
    """Makes the bytes of one file under any name, since a put without an answer is repeated under another."""

    def __init__(self) -> None:
        self.blocks: list[tuple[bytes, int]] = []
        """The body of each block, with its plain checksum."""
        self.first_keys: list[bytes] = []
        self.bytes = 0
        self._keys: list[list[bytes]] = []
        self._filter = b""
        self._entries = 0
        self._tombstones = 0

    def add(self, keys: list[bytes], values: list[bytes | None]) -> None:
        body = block_body(keys, values)
        self.blocks.append((body, crc32c(body)))
        self.first_keys.append(keys[0])
        self.bytes += len(body)
        self._keys.append(keys)
        self._entries += len(keys)
        self._tombstones += values.count(None)

    async def prepare(self, slices: TimeSlices) -> None:
        """Do what does not depend on the name."""
        bits = empty_filter(self._entries)
        for keys in self._keys:
            add_keys(bits, keys)
            await slices.step()
        self._filter = bytes(bits)

    def encode_as(self, name: str) -> tuple[list[bytes], RunFile]:
        buffers: list[bytes] = []
        places: list[tuple[int, int]] = []
        offset = 0
        for body, checksum in self.blocks:
            buffers += (body, block_checksum(checksum, name, offset))
            places.append((offset, len(body) + checksum_bytes))
            offset += places[-1][1]
        tail = Tail(self.first_keys, places, self._entries, self._tombstones, self._filter)
        buffers.append(encode_tail(tail, name, offset))
        length = offset + len(buffers[-1])
        file = RunFile(0, 0, length, offset, self._entries, self._tombstones, self.first_keys[0], self._keys[-1][-1])
        return buffers, file
