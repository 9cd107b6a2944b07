"""Defines segments that several instances extend one at a time: reading, conditional appends, and a mark."""

from __future__ import annotations

from typing import Protocol


class RevisionedSegments(Protocol):
    """Reads and extends the one segment of a revisioned stream. A revision is an offset between two events.

    Errors: ``SegmentNotFound``, ``Unavailable`` (certainly not done), ``UnknownOutcome`` (read again and decide).
    """

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """1 to ``length`` bytes from an offset below the segment's length. ``SegmentTruncated``."""
        ...

    async def append_at(self, segment: str, offset: int, event: bytes) -> bool:
        """Append an event behind its header if the segment's length is ``offset``; False if it is another."""
        ...

    async def mark(self, segment: str) -> int | None:
        """The revision that was marked last; None if none was."""
        ...

    async def move_mark(self, segment: str, expected: int | None, revision: int) -> bool:
        """Mark a revision if ``expected`` is the one that is marked; False if another is."""
        ...
