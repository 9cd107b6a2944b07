"""Removes the records of epochs that a truncation left behind (docs/controller-api.md 3.6).

The oldest epoch that is answered for moves first; then the records of those before it go. A run that ends in between is
continued by a later one, here or elsewhere. Nothing is held: what may go never becomes needed again.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from controller_service.store.history_floor import awaits_expiry, finished_head, has_records_to_lose, stage_next
from controller_service.store.records import (
    TRANSITION,
    TRUNCATION,
    HistoryRecord,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.stream_context import StreamContext, epochs_per_read_max
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import SegmentNotFound, StreamNotFound
from pravega_common.runtime.failpoints import failpoint, register

epochs_per_run_max: Final = 1_000
"""Epochs of one stream whose records one run removes."""
keys_per_removal_max: Final = 5_000

OLDEST_MOVED = register("controller.history_oldest_moved")
SEGMENTS_REMOVED = register("controller.history_segments_removed")
EPOCHS_REMOVED = register("controller.history_epochs_removed")


class TransactionEpochs(Protocol):
    """The part of the transactions' records that expiry needs."""

    async def lowest_epoch(self, scope: str, stream: str) -> int | None:
        """The lowest epoch that a transaction of the stream still needs; None without any. ``StreamNotFound``."""
        ...


class HistoryExpiry:
    def __init__(self, store: StreamStore, transactions: TransactionEpochs, age_ms: int) -> None:
        """``age_ms``: how long the records stay after the truncation, for readers that are behind it."""
        self._store = store
        self._transactions = transactions
        self._age_ms = age_ms

    async def apply(self, scope: str, stream: str) -> bool:
        """Do what is due; False for a stream that has nothing to lose until it is truncated again.

        Idempotent; ``StreamNotFound``.
        """
        return await self.apply_to(await self._store.open(scope, stream))

    async def apply_to(self, context: StreamContext) -> bool:
        """``apply`` to a stream that was just opened: if nothing is due, it costs nothing more."""
        if not has_records_to_lose(await context.history()):
            return False
        if self._is_due(await context.history()):
            context = await self._move_oldest(context)
            failpoint(OLDEST_MOVED)
        history = await context.history()
        if history.removed_till < history.oldest_epoch:
            try:
                await self._remove(context, history)
            except SegmentNotFound as error:
                self._store.forget(context.scope, context.stream)
                raise StreamNotFound.of(context.scope, context.stream) from error
        return True  # Perhaps it was the last time: the next run sees that.

    def _is_due(self, history: HistoryRecord) -> bool:
        return awaits_expiry(history) and self._store.clock.wall_ms() >= history.next_since_ms + self._age_ms

    # ---- the oldest epoch --------------------------------------------------------------------------------------------

    async def _move_oldest(self, seen: StreamContext) -> StreamContext:
        lowest = await self._transactions.lowest_epoch(seen.scope, seen.stream)

        async def change(context: StreamContext) -> None:
            history = await context.history()
            if context.stream_id != seen.stream_id or not self._is_due(history):
                return
            needed = [history.next_oldest, (await context.current_epoch()).reference_epoch]
            if lowest is not None:
                needed.append(lowest)
            transition = await context.transition()
            if not transition.is_empty:
                needed.append(transition.active_epoch)
            moved = dataclasses.replace(history, oldest_epoch=max(history.oldest_epoch, min(needed)))
            if awaits_expiry(moved):
                # Transactions, or a scale, hold it up: looked at again by the next run.
                context.stage_history(moved)
            else:
                await stage_next(context, moved, await finished_head(context), self._store.clock.wall_ms())

        return await self._store.update(seen.scope, seen.stream, change, TRANSITION, TRUNCATION)

    # ---- the records before it ---------------------------------------------------------------------------------------

    async def _remove(self, context: StreamContext, history: HistoryRecord) -> None:
        """Remove the records of the next epochs, and note how far that went."""
        # Looked at after the move: a transaction is in the table before its creator looks at the oldest epoch.
        lowest = await self._transactions.lowest_epoch(context.scope, context.stream)
        start = history.removed_till
        end = min(history.oldest_epoch, start + epochs_per_run_max)
        end = end if lowest is None else min(end, lowest)
        if end <= start:
            return
        kept = frozenset((await context.epoch(end)).segment_ids)
        for first in range(start, end, epochs_per_read_max - 1):
            await self._remove_page(context, first, min(first + epochs_per_read_max - 1, end), kept)

        async def note(fresh: StreamContext) -> None:
            known = await fresh.history()
            if fresh.stream_id == context.stream_id and known.removed_till < end:
                fresh.stage_history(dataclasses.replace(known, removed_till=end))

        await self._store.update(context.scope, context.stream, note)

    async def _remove_page(self, context: StreamContext, first: int, end: int, kept: frozenset[int]) -> None:
        """Remove epochs ``first..end - 1`` and their segments' records, without those of segments that go on."""
        epochs = [epoch async for epoch in context.walk_epochs(range(first, end + 1), some_removed=True)]
        replaced: dict[int, None] = {}
        for epoch in epochs:
            if epoch.epoch < end:
                replaced |= dict.fromkeys(epoch.segment_ids)
            else:
                kept |= frozenset(epoch.segment_ids)
        names = [sealed_segment_key(identifier).name for identifier in replaced if identifier not in kept]
        # An epoch tells the names of its segments' records, so it goes after them.
        for start in range(0, len(names), keys_per_removal_max):
            await self._store.tables.remove_many(context.metadata_table, names[start : start + keys_per_removal_max])
        failpoint(SEGMENTS_REMOVED)
        numbers = [epoch_key(epoch.epoch).name for epoch in epochs if epoch.epoch < end]
        await self._store.tables.remove_many(context.metadata_table, numbers)
        failpoint(EPOCHS_REMOVED)
