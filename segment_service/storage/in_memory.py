"""Keeps chunks in a dictionary, for tests. One instance is one object store; it outlives its users."""

from __future__ import annotations

import bisect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from pravega_common.errors import DataCorruption, PravegaError, SegmentNotFound
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, check_deletion

T = TypeVar("T")


class InMemoryChunkStorage:
    """A ``ChunkStorage`` without I/O. ``close`` keeps the objects, so that a test can open them again."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._names: list[str] = []

    async def start(self) -> None:
        """Do nothing: there is no server."""

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        check(name not in self.objects, "a chunk name was used twice", name=name)
        self.objects[name] = b"".join(data)
        bisect.insort(self._names, name)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        data = self._find(name)
        if offset + length > len(data):
            raise DataCorruption(f"chunk {name}: bytes {offset}+{length} wanted, it has {len(data)}")
        return data[offset : offset + length]

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        return function(await self.get(name, offset, length))

    async def info(self, name: str) -> ChunkInfo:
        return ChunkInfo(name, len(self._find(name)))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        position = bisect.bisect_left(self._names, prefix)
        found = []
        while position < len(self._names) and self._names[position].startswith(prefix):
            name = self._names[position]
            found.append(ChunkInfo(name, len(self.objects[name])))
            position += 1
        for info in found:
            yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        check_deletion(names)
        for name in names:
            if self.objects.pop(name, None) is not None:
                self._names.pop(bisect.bisect_left(self._names, name))
        return {}

    async def close(self) -> None:
        """The objects stay."""

    def _find(self, name: str) -> bytes:
        data = self.objects.get(name)
        if data is None:
            raise SegmentNotFound(name)
        return data
