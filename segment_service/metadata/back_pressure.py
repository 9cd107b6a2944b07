"""Counts the bytes that a store took and that are not in Tier 2 yet, against a named limit.

Counted from the moment an append is queued until the storage writer says that Tier 2 has it, and again from the
replay on after a recovery. Above the limit nobody reads from sockets; far above it (a caller that does not ask)
appends are refused. The limit lies below the cache budget, so that everything counted fits the cache.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pravega_common.invariants import check
from segment_service.contracts.segment_metadata import SegmentMetadata

unflushed_bytes_max_default: Final = 256 * 1024 * 1024
"""Bytes not in Tier 2 above which a store takes nothing more from its sockets."""
hard_limit_ratio: Final = 1.5
"""Appends are refused with ``Throttled`` above this multiple of the limit."""


class StoreBackPressure:
    """``BackPressure`` of a whole store; each container adds and removes through its ``PendingBytes``."""

    def __init__(self, bytes_max: int = unflushed_bytes_max_default) -> None:
        self.bytes_max = bytes_max
        self.bytes_hard_max = int(bytes_max * hard_limit_ratio)
        self.bytes = 0
        self._opened = asyncio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        return self.bytes < self.bytes_max

    @property
    def refuses(self) -> bool:
        return self.bytes >= self.bytes_hard_max

    async def wait_open(self) -> None:
        await self._opened.wait()

    def change(self, delta: int) -> None:
        self.bytes += delta
        if self.bytes < self.bytes_max:
            if not self._opened.is_set():
                self._opened.set()
        elif self._opened.is_set():
            self._opened.clear()


class PendingBytes:
    """One container's share: bytes on their way to Tier 1, and per segment those in Tier 1 but not in Tier 2."""

    def __init__(self, store: StoreBackPressure) -> None:
        self.store = store
        self.in_flight = 0
        self._unflushed: dict[int, int] = {}
        self._total = 0

    @property
    def unflushed(self) -> int:
        """Durable bytes not yet in Tier 2."""
        return self._total

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
        self._total = self.in_flight = 0
        self._unflushed.clear()
