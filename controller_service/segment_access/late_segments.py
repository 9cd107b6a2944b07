"""Takes segments away that were made too late: for a stream that is deleted by then, or before its head.

A run of a workflow that stands still may make the segments of an epoch after another run finished the work, and after
the stream was truncated behind them or deleted: then it is the only one who knows of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.history import place_in
from controller_service.store.records import TRUNCATION, SegmentRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import CutIndex
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import Outcome, StreamNotFound
from pravega_common.runtime.clock import Clock
from pravega_common.services.retrying import RetryLimits, retry

T = TypeVar("T")

settle_limits: Final = RetryLimits(attempts_max=10, pause_s=lambda failed: 0.02 * 2.0**failed)
"""Attempts within some 20 s, on top of those of the calls themselves."""


async def insist(settle: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a step behind the creation of segments here, unless it is refused: a later attempt of the request may find
    the stream gone, and would not know that there are any."""
    return await retry(settle, settle_limits, clock, when=lambda error: error.outcome is not Outcome.REJECTED)


async def take_away_if_late(
    streams: StreamStore, segments: SegmentAccess, made_for: StreamContext, made: Sequence[SegmentRecord]
) -> None:
    """Delete those of an epoch's segments that neither a deletion nor a truncation of the stream comes to any more.

    To be called when a step behind their creation, or the creation itself, did not succeed. Segments of a plan that is
    in progress stay; so do those of one that was taken back, whose names the next plan uses.
    """

    async def settle() -> None:
        late = await _late_of(streams, made_for, made)
        if late:
            await segments.delete_segments([segment.name(made_for.scope, made_for.stream) for segment in late])

    await insist(settle, streams.clock)


async def _late_of(
    streams: StreamStore, made_for: StreamContext, made: Sequence[SegmentRecord]
) -> Sequence[SegmentRecord]:
    try:
        fresh = await streams.open(made_for.scope, made_for.stream, TRUNCATION)
        if fresh.stream_id != made_for.stream_id or (await fresh.state_record()).is_deleting:
            return made
        # Also of a truncation in progress: it may have passed, and deletes the same segments.
        cut = (await fresh.truncation()).cut
        if not cut:
            return ()
        head = CutIndex(await place_in(fresh, cut))
        return [segment for segment in made if head.is_after(segment)]
    except StreamNotFound:
        streams.forget(made_for.scope, made_for.stream)
        return made
