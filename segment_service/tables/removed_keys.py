"""Remembers the keys of a table that were removed last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

removed_keys_max: Final = 2_000
"""Removed keys that are remembered for each table, to answer a conditional update of one with ``BadKeyVersion``."""
removed_bytes_max: Final = 512 * 1024
"""Bytes of those keys, which may be long."""
removed_key_memory_bytes: Final = 150
"""Memory that a removed key takes beside the key itself."""


class RemovedKeys:
    """The longest known keys are forgotten first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self.bytes_used = 0
        """Bytes of the keys."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def memory_bytes(self) -> int:
        return removed_key_memory_bytes * len(self._keys) + self.bytes_used

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def add(self, key: bytes) -> None:
        if key not in self._keys:
            self._keys[key] = None
            self.bytes_used += len(key)
        while len(self._keys) > removed_keys_max or self.bytes_used > removed_bytes_max:
            self.bytes_used -= len(self._keys.popitem(last=False)[0])

    def discard(self, key: bytes) -> None:
        """The key is there again, if it is known at all."""
        if key in self._keys:
            del self._keys[key]
            self.bytes_used -= len(key)

    def clear(self) -> None:
        self._keys.clear()
        self.bytes_used = 0
