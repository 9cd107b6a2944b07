"""Counts what a store took and holds until it is in Tier 2, against named limits.

Bytes are counted from the moment an append is queued until the storage writer says that Tier 2 has it, and again from
the replay on after a recovery; operations, with or without bytes, while the memory log holds them. Above a limit nobody
reads from sockets; far above it (a caller that does not ask) appends, and in the end all operations, are refused. The
limit on bytes lies below the cache budget; blocks have more capacity than bytes, so a cache that is above its budget
and has nothing to evict holds the store up too, until the storage writer is through with some of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pravega_common.invariants import check
from segment_service.contracts.segment_metadata import SegmentMetadata

unflushed_bytes_max_default: Final = 256 * 1024 * 1024
"""Bytes not in Tier 2 above which a store takes nothing more from its sockets."""
operations_max_default: Final = 1_000_000
"""Operations in the memory logs of a store above which it takes nothing more from its sockets."""
operation_bytes: Final = 650
"""Memory that an operation takes while the memory log holds it, whatever its bytes: measured on appends of 20 B."""
hard_limit_ratio: Final = 1.5
"""Operations are refused with ``Throttled`` above this multiple of a limit."""


class StoreBackPressure:
    """``BackPressure`` of a whole store; each container adds and removes through its ``PendingBytes``."""

    def __init__(
        self, bytes_max: int = unflushed_bytes_max_default, operations_max: int = operations_max_default
    ) -> None:
        self.bytes_max = bytes_max
        self.bytes_hard_max = int(bytes_max * hard_limit_ratio)
        self.bytes = 0
        self.operations_max = operations_max
        self.operations_hard_max = int(operations_max * hard_limit_ratio)
        self.operations = 0
        self._held_by: set[str] = set()
        self._opened = asyncio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    @property
    def refuses(self) -> bool:
        """Whether appends with bytes are refused."""
        return self.bytes >= self.bytes_hard_max

    @property
    def refuses_operations(self) -> bool:
        """Whether all operations are refused."""
        return self.operations >= self.operations_hard_max

    @property
    def held_bytes(self) -> int:
        """Memory of what was taken and is not in Tier 2: the bytes, and the fixed cost of each operation."""
        return self.bytes + self.operations * operation_bytes

    @property
    def held_by(self) -> frozenset[str]:
        """The other parts that hold the store up."""
        return frozenset(self._held_by)

    def hold(self, part: str, is_held: bool) -> None:
        """Let a part of the store that is full hold it up, or no longer."""
        if is_held:
            self._held_by.add(part)
        else:
            self._held_by.discard(part)
        self._update()

    async def wait_open(self) -> None:
        await self._opened.wait()

    def change(self, delta: int) -> None:
        self.bytes += delta
        self._update()

    def operations_changed(self, delta: int) -> None:
        """Operations came to a memory log, or left it."""
        self.operations += delta
        self._update()

    def _update(self) -> None:
        if self.bytes < self.bytes_max and self.operations < self.operations_max and not self._held_by:
            if not self._opened.is_set():
                self._opened.set()
        elif self._opened.is_set():
            self._opened.clear()


class PendingBytes:
    """One container's share: bytes on their way to Tier 1, and per segment those in Tier 1 but not in Tier 2."""

    def __init__(self, store: StoreBackPressure) -> None:
        self.store = store
        self.in_flight = 0
        self.operations = 0
        """Operations in the memory log."""
        self._unflushed: dict[int, int] = {}
        self._total = 0

    @property
    def unflushed(self) -> int:
        """Durable bytes not yet in Tier 2."""
        return self._total

    def operations_added(self, count: int) -> None:
        """Operations are durable and in the memory log."""
        self.operations += count
        self.store.operations_changed(count)

    def operations_acknowledged(self, count: int) -> None:
        """The storage writer is through with operations; the memory log forgot them."""
        self.operations -= count
        check(self.operations >= 0, "more operations acknowledged than added", operations=self.operations)
        self.store.operations_changed(-count)

    def accepted(self, length: int) -> None:
        """An append was queued."""
        self.in_flight += length
        self.store.change(length)

    def dropped(self, length: int) -> None:
        """A queued append was refused or failed."""
        self.in_flight -= length
        self.store.change(-length)

    def committed(self, segment_id: int, length: int) -> None:
        """A queued append is durable."""
        self.in_flight -= length
        self._total += length
        self._unflushed[segment_id] = self._unflushed.get(segment_id, 0) + length

    def replayed(self, segment_id: int, length: int) -> None:
        """An append was read back in recovery."""
        self.accepted(length)
        self.committed(segment_id, length)

    def merged(self, target_id: int, source_id: int) -> None:
        source = self._unflushed.pop(source_id, 0)
        self._unflushed[target_id] = self._unflushed.get(target_id, 0) + source

    def flushed(self, segment: SegmentMetadata) -> None:
        """The storage length of the segment moved: at most the bytes above it are still to be written."""
        old = self._unflushed.get(segment.segment_id, 0)
        new = min(old, segment.length - segment.storage_length)
        if new:
            self._unflushed[segment.segment_id] = new
        else:
            self._unflushed.pop(segment.segment_id, None)
        self._remove(old - new)

    def deleted(self, segment_id: int) -> None:
        self._remove(self._unflushed.pop(segment_id, 0))

    def _remove(self, length: int) -> None:
        self._total -= length
        check(self._total >= 0, "more bytes flushed than written", total=self._total)
        self.store.change(-length)

    def clear(self) -> None:
        """The container is gone, with all it counted."""
        self.store.change(-self._total - self.in_flight)
        self.store.operations_changed(-self.operations)
        self._total = self.in_flight = self.operations = 0
        self._unflushed.clear()
