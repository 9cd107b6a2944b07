"""Defines the contract of a second cache level, which is asked for evicted blocks before Tier 2."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class SegmentKey(NamedTuple):
    """The owner of bytes. Ids are never reused and the bytes at an offset never change: no entry goes stale."""

    container_id: int
    segment_id: int


class SecondLevelCache(Protocol):
    """Holds bytes that are in Tier 2, and promises nothing: every call may find, or keep, nothing."""

    @property
    def bytes_used(self) -> int:
        """Bytes that are kept."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes that were given out, since the start."""
        ...

    def offer(self, key: SegmentKey, offset: int, data: memoryview) -> None:
        """Keep the bytes if that is possible; never waits. Holds on to the view until they are written."""
        ...

    def covered_to(self, key: SegmentKey, offset: int) -> int | None:
        """Up to where the bytes from ``offset`` on are here in one piece; ``None`` if that byte is not."""
        ...

    async def read(self, key: SegmentKey, offset: int, length: int) -> bytes | None:
        """Exactly these bytes, or ``None``."""
        ...

    def forget(self, key: SegmentKey) -> None:
        """The segment is gone."""
        ...
