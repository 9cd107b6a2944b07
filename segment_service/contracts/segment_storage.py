"""Defines the contract between the storage writer and Tier 2: segments as growing byte strings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from segment_service.contracts.buffer import Buffer

write_bytes_max = 16 << 20
"""Bytes of one write, which is one object."""

Barrier = Callable[[], Awaitable[None]]
"""Adds an operation to the container's log and returns once it is durable: proof that this owner is not fenced."""


@dataclass(frozen=True, slots=True)
class StorageState:
    """The bytes [start_offset, length) of one segment that are in Tier 2.

    ``start_offset`` is exact (the truncation offset); chunks wholly below it are deleted in the background.
    """

    segment_id: int
    start_offset: int
    length: int
    is_sealed: bool


class SegmentStorage(Protocol):
    """Tier 2 of one container at one epoch, by segment *id* (ids are never reused).

    One caller at a time per segment (the storage writer); reads are concurrent with everything. Each method is
    idempotent in the sense that after an ``UnknownOutcome`` or ``Unavailable`` the caller asks ``state`` and goes on
    from what is really there. Nothing is deleted before ``barrier`` has returned after the manifest without it was
    stored, and nothing whose name carries a higher epoch is ever deleted: then the call raises ``Fenced``.
    """

    async def start(self, epoch: int, barrier: Barrier) -> None:
        """Open at the epoch of the container. ``Fenced`` if a manifest carries a higher one."""
        ...

    async def state(self, segment_id: int) -> StorageState | None:
        """The state as the manifests in Tier 2 say now, past any cache; ``None`` if Tier 2 has nothing."""
        ...

    async def write(self, segment_id: int, offset: int, data: Sequence[Buffer]) -> None:
        """Add bytes at ``offset``, which must be the segment's length in Tier 2 (0 creates it; else ``BadOffset``)."""
        ...

    async def seal(self, segment_id: int) -> None: ...

    async def truncate(self, segment_id: int, offset: int) -> None:
        """Forget what lies below ``offset``. An offset beyond the length in Tier 2 says that the bytes between will
        never come (they were truncated before they were written): the segment then begins and ends there."""
        ...

    async def concat(self, target_id: int, offset: int, source_id: int) -> None:
        """Move all chunks of the source to the end of the target (``offset`` = target's length in Tier 2):
        first into the target's manifest, then out of the source's. Idempotent."""
        ...

    async def delete(self, segment_id: int) -> None:
        """Idempotent; also for a segment that never reached Tier 2."""
        ...

    async def read(self, segment_id: int, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes; ``SegmentNotFound``/``BadOffset``/``SegmentTruncated`` if they are not there."""
        ...

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when something that works in the background here died: the container must then stop."""
        ...

    async def close(self) -> None: ...
