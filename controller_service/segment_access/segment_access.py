"""Defines the operations that a controller needs of the segment stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pravega_common.errors import SegmentNotFound, SegmentSealed
from pravega_common.model.segments import SegmentInfo
from pravega_common.runtime.joined import each_ended

calls_at_once_max: Final = 8
"""Calls for the segments of one stream or table that are in flight at a time where each is a request of its own: with
thousands of segments, stores and controllers serve others in between."""


class SegmentAccess(Protocol):
    """Calls to whichever store owns a segment's container, repeated until answered.

    Every call is idempotent as the workflows need it: creating an existing segment, sealing a sealed one, deleting
    a missing one, truncating below the start and merging a source whose merge is *recorded* all succeed. Store
    moves and lost connections are retried inside within ``call_time_max_s``; then ``Unavailable`` (certainly not
    done) or ``UnknownOutcome``. Several segments in one call travel in batches, to all stores concurrently; a plain
    Pravega gets a request for each.
    """

    async def create_segments(
        self, segments: Sequence[str], *, scale_type: int = 0, target_rate: int = 0, rollover_size_bytes: int = 0
    ) -> None: ...

    async def seal_segments(self, segments: Sequence[str]) -> None: ...

    async def delete_segments(self, segments: Sequence[str]) -> None: ...

    async def truncate_segment(self, segment: str, offset: int) -> None: ...

    async def update_policy(self, segment: str, scale_type: int, target_rate: int) -> None: ...

    async def info(self, segment: str) -> SegmentInfo:
        """``SegmentNotFound`` if missing."""
        ...

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo]:
        """The same of many, in their order. ``SegmentNotFound`` names one that is missing."""
        ...

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        """The same of many, in their order, with None for one that is missing."""
        ...

    async def lengths(self, segments: Sequence[str]) -> list[int | None]:
        """The lengths of many in bytes, in their order, with None for one that is missing."""
        ...

    async def merge_batch(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge in order; the target's length after each, also for a source that was merged into it before.

        ``SegmentNotFound`` with the name of a source that is missing, and of whose merge into this target the store has
        no record: nothing was merged then.
        """
        ...

    async def merge_batches(
        self, merges: Sequence[tuple[str, Sequence[str]]]
    ) -> list[list[int] | SegmentNotFound | SegmentSealed]:
        """``merge_batch`` for many targets, by (target, sources): the lengths, or the error that is this target's own.

        Any other error is raised, once nothing of the call is in flight any more: each merge may have been made then.
        """
        ...

    async def create_table_segment(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None: ...

    async def delete_table_segment(self, segment: str, must_be_empty: bool) -> None: ...


async def delete_table_segments(access: SegmentAccess, names: Sequence[str]) -> None:
    """Delete tables, whatever they hold."""
    await each_ended(
        lambda name: access.delete_table_segment(name, must_be_empty=False), names, at_once=calls_at_once_max
    )
