"""Defines the contract of the read index, which finds the bytes of every segment for readers and storage writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_store import ReadResult


class ReadIndex(Protocol):
    """Bytes of all segments of one container: from the cache, from Tier 2, or, at the tail, as soon as they come.

    The mutating methods are called by the durable log when an operation is *durable*, in log order, after the
    segment's metadata was updated, and never wait. A byte that is not in Tier 2 (at or above the segment's storage
    length, or in a merged source that Tier 2 has not moved yet) is never evicted. A view that was handed out stays
    valid and unchanged for as long as somebody holds it. The same offset always gives the same bytes.
    """

    def append(self, segment_id: int, offset: int, data: Sequence[Buffer]) -> None:
        """Copy the bytes once into the cache and wake waiting readers of the segment (once per loop turn)."""
        ...

    def merge(self, target_id: int, offset: int, source_id: int, length: int) -> None:
        """The source's entries become the target's at ``offset``, in one step; no byte is copied. What is only in
        Tier 2 is read from the source there until ``merge_completed``."""
        ...

    def merge_completed(self, target_id: int, source_id: int) -> None:
        """Tier 2 has moved the source's bytes into the target."""
        ...

    def seal(self, segment_id: int) -> None:
        """Wake the readers waiting at the end."""
        ...

    def truncate(self, segment_id: int, offset: int) -> None: ...

    def delete(self, segment_id: int) -> None:
        """Drop all entries; waiting readers get ``SegmentNotFound``."""
        ...

    def is_in_use(self, segment_id: int) -> bool:
        """Whether somebody waits at the segment's end, or Tier 2 has not moved a segment that was merged into it."""
        ...

    def unload(self, segment_id: int) -> None:
        """The segment becomes inactive: all its bytes are in Tier 2, nobody waits; it comes back when it is used."""
        ...

    def storage_length_changed(self, segment_id: int) -> None:
        """Entries below the segment's storage length may be evicted from now on."""
        ...

    async def read(self, segment_id: int, offset: int, length_max: int) -> ReadResult:
        """As ``SegmentStore.read``."""
        ...

    def read_in_memory(self, segment_id: int, offset: int, length_max: int) -> ReadResult | None:
        """Answers as ``read`` where all wanted bytes that there are have a place in the cache; None where not."""
        ...

    def truncated_below(self, segment_id: int) -> int:
        """As ``WriterDataSource.truncated_below``."""
        ...

    def read_cached(self, segment_id: int, offset: int, length: int) -> list[memoryview]:
        """As ``WriterDataSource.read_cached``; an invariant violation if a byte is not in the cache."""
        ...

    def close(self) -> None:
        """End waiting reads with empty data and ``at_tail``."""
        ...
