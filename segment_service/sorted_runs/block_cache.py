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
    """Least recently used parts go first. Objects never change, so that what is here never is out of date."""

    def __init__(self, bytes_max: int = cache_bytes_default) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.loading: dict[PartKey, asyncio.Future[RunBlock | Tail | None]] = {}
        """The parts that are being read: others who want one wait for it, and get ``None`` if that failed."""
        self._parts: OrderedDict[PartKey, tuple[RunBlock | Tail, int]] = OrderedDict()

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
        self.bytes_used += charge
        while self.bytes_used > self.bytes_max:
            _, (_, oldest) = self._parts.popitem(last=False)
            self.bytes_used -= oldest

    def _find(self, key: PartKey) -> RunBlock | Tail | None:
        found = self._parts.get(key)
        if found is None:
            return None
        self._parts.move_to_end(key)
        return found[0]
