"""Tier 2 of one container as byte strings, with a gate, for tests of the read index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pravega_common.errors import BadOffset, SegmentDamaged, SegmentNotFound, SegmentTruncated
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_storage import (
    Barrier,
    EpochMark,
    LogStateNow,
    NeededLengths,
    OnDamage,
    StorageState,
)


class FakeSegmentStorage:
    """A ``SegmentStorage`` whose reads can be held back (``gate``) and are counted (``reads``)."""

    def __init__(self) -> None:
        self.segments: dict[int, bytearray] = {}
        self.starts: dict[int, int] = {}
        self.reads: list[tuple[int, int, int]] = []
        self.reading = asyncio.Condition()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.damaged: set[int] = set()

    async def newest_mark(self) -> EpochMark | None:
        return None

    async def first_object(self) -> str:
        return ""

    async def start(self, epoch: int, barrier: Barrier, log_state: LogStateNow) -> None:
        """Do nothing."""

    async def mark(self, high_water: int) -> None:
        """Do nothing."""

    async def state(self, segment_id: int) -> StorageState | None:
        data = self.segments.get(segment_id)
        if data is None:
            return None
        return StorageState(segment_id, self.starts.get(segment_id, 0), len(data), False)

    async def settled_state(self, segment_id: int, known_length: int) -> StorageState | None:
        return await self.state(segment_id)

    async def write(self, segment_id: int, offset: int, data: Sequence[Buffer], sequence: int | None = None) -> None:
        self.segments.setdefault(segment_id, bytearray()).extend(b"".join(data))

    async def seal(self, segment_id: int, sequence: int | None = None) -> None:
        """Lengths alone matter here."""

    async def truncate(self, segment_id: int, offset: int, sequence: int | None = None) -> None:
        self.starts[segment_id] = offset

    async def concat(self, target_id: int, offset: int, source_id: int, sequence: int | None = None) -> None:
        self.segments.setdefault(target_id, bytearray()).extend(self.segments.pop(source_id))

    async def delete(self, segment_id: int, sequence: int | None = None) -> None:
        self.segments.pop(segment_id, None)

    async def read(self, segment_id: int, offset: int, length: int) -> bytes:
        async with self.reading:
            self.reads.append((segment_id, offset, length))
            self.reading.notify_all()
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if segment_id in self.damaged:
            raise SegmentDamaged(segment_id, f"#{segment_id} is damaged")
        data = self.segments.get(segment_id)
        if data is None:
            raise SegmentNotFound(f"#{segment_id}")
        start = self.starts.get(segment_id, 0)
        if offset < start:
            raise SegmentTruncated(f"#{segment_id}", start, offset)
        if offset + length > len(data):
            raise BadOffset(f"#{segment_id}", len(data), offset + length)
        return bytes(data[offset : offset + length])

    def block_around(self, segment_id: int, offset: int) -> tuple[int, int] | None:
        """Nothing is read together here."""
        return None

    async def wait_reads(self, count: int) -> None:
        """Wait until ``count`` reads have begun."""
        async with self.reading:
            await self.reading.wait_for(lambda: len(self.reads) >= count)

    def watch_damage(self, needed_lengths: NeededLengths, callback: OnDamage) -> None:
        """Do nothing: nothing works in the background."""

    @property
    def unswept_segments(self) -> int:
        """None: nothing is swept."""
        return 0

    @property
    def sweep_failures(self) -> int:
        """None: nothing is swept."""
        return 0

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Do nothing: nothing works in the background."""

    async def close(self) -> None:
        """Do nothing."""
