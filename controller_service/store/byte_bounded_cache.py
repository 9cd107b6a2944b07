"""Keeps values in memory up to a total size; the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

entry_bytes: Final = 512
"""Counted for each entry beside its value: keys and the cache's own objects."""


class ByteBoundedCache(Generic[K, V]):
    """Sizes are the callers' estimates. A value larger than the whole cache is not kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        size = size_bytes + entry_bytes
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old[1]
        if size > self._bytes_max:
            return
        self._entries[key] = (value, size)
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._bytes -= dropped
