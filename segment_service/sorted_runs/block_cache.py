"""Keeps decoded parts of runs in memory, up to a budget."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from segment_service.sorted_runs.run_format import RunBlock, Tail

cache_bytes_default: Final = 32 << 20
"""Budget of a store for blocks, tails and filters of all its maps."""
entry_bytes: Final = 120
"""Memory that an entry of a decoded block takes beside its bytes: two objects and their places in two lists."""

PartKey = tuple[str, int]
"""The name of an object and an offset in it."""


class BlockCache:
    """Least recently used parts go first, and those of an object that is discarded at once: its name does not come
    again. Objects never change, so that what is here never is out of date."""

    def __init__(self, bytes_max: int = cache_bytes_default) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.loading: dict[PartKey, asyncio.Future[RunBlock | Tail | None]] = {}
        """The parts that are being read: others who want one wait for it, and get ``None`` if that failed."""
        self._parts: OrderedDict[PartKey, tuple[RunBlock | Tail, int]] = OrderedDict()
        self._offsets: dict[str, set[int]] = {}
        """The offsets of the parts of each object that are here."""

    def __len__(self) -> int:
        return len(self._parts)

    def block(self, key: PartKey) -> RunBlock | None:
        found = self._find(key)
        return found if isinstance(found, RunBlock) else None

    def tail(self, key: PartKey) -> Tail | None:
        found = self._find(key)
        return found if isinstance(found, Tail) else None

    def add(self, key: PartKey, part: RunBlock | Tail, stored_bytes: int) -> None:
        """Keep a part; one that is larger than the whole budget is not kept."""
        count = len(part.keys) if isinstance(part, RunBlock) else len(part.first_keys)
        charge = stored_bytes + entry_bytes * count
        if charge > self.bytes_max or key in self._parts:
            return
        self._parts[key] = (part, charge)
        self._offsets.setdefault(key[0], set()).add(key[1])
        self.bytes_used += charge
        while self.bytes_used > self.bytes_max:
            (name, offset), (_, oldest) = self._parts.popitem(last=False)
            self.bytes_used -= oldest
            self._offsets[name].remove(offset)
            if not self._offsets[name]:
                del self._offsets[name]

    def forget(self, name: str) -> None:
        """Drop the parts of an object that no manifest lists any more. A read that began before may add one again,
        which then goes by its age."""
        for offset in self._offsets.pop(name, ()):
            _, charge = self._parts.pop((name, offset))
            self.bytes_used -= charge

    def _find(self, key: PartKey) -> RunBlock | Tail | None:
        found = self._parts.get(key)
        if found is None:
            return None
        self._parts.move_to_end(key)
        return found[0]
