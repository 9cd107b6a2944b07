"""Decides which epochs of a truncated stream keep their records (docs/controller-api.md 3.6)."""

from __future__ import annotations

import dataclasses
from typing import Final

from controller_service.store.history import place_in
from controller_service.store.records import HistoryRecord, TruncationRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut

epochs_before_head_max: Final = 16
"""Epochs before that of a stream's head that keep their records."""


def awaits_expiry(history: HistoryRecord) -> bool:
    """Whether a truncation is on record that will make another epoch the oldest one."""
    return history.next_oldest > history.oldest_epoch


def has_records_to_lose(history: HistoryRecord) -> bool:
    """Whether some run of the expiry still has to look at the stream."""
    return awaits_expiry(history) or history.removed_till < history.oldest_epoch


def may_let_expire(history: HistoryRecord, head: PlacedCut) -> bool:
    """Whether a truncation at this head may set another epoch as the next oldest one."""
    return head.first_epoch - epochs_before_head_max > history.oldest_epoch


async def note_head(context: StreamContext, head: PlacedCut, now_ms: int) -> None:
    """Stage what a finished truncation lets expire, unless an earlier one waits already: otherwise a stream that is
    truncated often would never come to it."""
    history = await context.history()
    if not awaits_expiry(history):
        await stage_next(context, history, head, now_ms)


async def stage_next(context: StreamContext, history: HistoryRecord, head: PlacedCut | None, now_ms: int) -> None:
    """Stage ``history`` with the epoch that is to be its oldest, counted from now.

    New transactions are of the reference epoch of the current one, so nothing after that may go.
    """
    first = 0 if head is None else head.first_epoch
    next_oldest = min(first, (await context.current_epoch()).reference_epoch) - epochs_before_head_max
    if next_oldest > history.oldest_epoch:
        history = dataclasses.replace(history, next_oldest=next_oldest, next_since_ms=now_ms)
    if history != await context.history():
        context.stage_history(history)


async def finished_head(context: StreamContext) -> PlacedCut | None:
    """The cut before which no segment of the stream exists; None for its start."""
    truncation: TruncationRecord = await context.truncation()
    cut = truncation.since if truncation.updating else truncation.cut
    return await place_in(context, cut) if cut else None
