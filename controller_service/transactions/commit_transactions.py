"""Makes committing transactions readable, in the commit order of their stream (docs/controller-api.md 4.5).

One round takes up to 100 transactions of the lowest epoch that has any. What it takes, and how long every source and
target is, is durable before the first merge. From then on the store must have a record of the merge of a source that is
missing; a source that is missing before is an error, never a success.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
from prometheus_client import Gauge

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone, Request
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.holds import free
from controller_service.store.records import StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.writer_marks import writer_bytes_max
from controller_service.transactions.commit_holds import CommitHolds, CommitRun
from controller_service.transactions.commit_merges import MERGED, CommitMerges
from controller_service.transactions.commit_queue import commit_batch_max
from controller_service.transactions.completions import Completions
from controller_service.transactions.counts import COMMITTED, ROUND_SECONDS
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.records import (
    ActiveTransaction,
    CommittingRecord,
    CommittingTransaction,
)
from controller_service.transactions.rolling_commit import RollingCommit
from controller_service.transactions.scheduling import WorkScheduler
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common import names
from pravega_common.errors import (
    DataCorruption,
    FailedError,
    RejectedError,
    SegmentSealed,
    StreamNotFound,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.model.transactions import TransactionState
from pravega_common.names import split_scoped_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import both_ended

STATE_MOVED = register("transaction_commit.state_moved")
ROUND_RECORDED = register("transaction_commit.round_recorded")
MADE_ROLLING = register("transaction_commit.made_rolling")
COMPLETED = register("transaction_commit.completed_recorded")
REMOVED = register("transaction_commit.active_removed")
ROUND_ENDED = register("transaction_commit.round_ended")

rounds_per_request_max: Final = 20
"""Rounds that one request works off before others of the stream get their turn."""
lengths_per_round_max: Final = 20_000
"""Transactions times segments of a round: a stream of many segments commits fewer transactions at once."""
blocked_max: Final = 1_000
"""Blocked streams whose reason is kept."""
BLOCKED_STREAMS: Final = Gauge(
    "pravega_controller_blocked_streams", "Streams whose commits need an operator, as far as this controller tried"
)


class CommitFailed(FailedError):
    """A round cannot go on now; its record stays and it is tried again."""


class CommitListener(Protocol):
    """A receiver of what a round made readable, called before the round's record is cleared; must be idempotent."""

    async def committed(
        self, scope: str, stream: str, transaction: CommittingTransaction, position: dict[int, int]
    ) -> None:
        """``position``: segment id to offset behind the transaction, for the mark of its writer.

        See docs/controller-api.md 4.8.
        """
        ...


class CommitWorkflow:
    """Every step may run again, on any instance, and beside others on the same stream: each run marks the stream's
    state as its own before it works on a round, and the last one that did frees it, once no transaction waits. Steps
    are idempotent, and a round begins and ends by compare-and-set on its record."""

    def __init__(
        self,
        transactions: TransactionStore,
        segments: SegmentAccess,
        scheduler: WorkScheduler,
        clock: Clock,
        completions: Completions,
        listener: CommitListener,
    ) -> None:
        self._transactions = transactions
        self._streams: StreamStore = transactions.streams
        self._scheduler = scheduler
        self._clock = clock
        self._completions = completions
        self._holds = CommitHolds(transactions)
        self._merges = CommitMerges(segments)
        self._rolling = RollingCommit(self._streams, segments, self._merges)
        self._listener = listener
        self.blocked: dict[str, str] = {}
        """Streams whose commits cannot go on by themselves, and why, as far as this controller tried."""
        self._log = structlog.get_logger(service="transactions")

    async def handle(self, request: Request) -> None:
        scope, stream = split_scoped_name(request.key)
        run = CommitRun(scope, stream)
        try:
            for _ in range(rounds_per_request_max):
                self._scheduler.commit_looks(request.key)
                found_work = await self.run_round(run)
                self._note_blocked(request.key, None)
                if not found_work and self._scheduler.commit_ended(request.key):
                    return
        except StreamNotFound:
            self._note_blocked(request.key, None)
            if run.hold is not None:
                # It may be the state of the next stream of the name, which only a run on that one frees.
                raise Postpone("the stream was deleted while its commits went on") from None
            self._log.info("commit dropped, the stream is gone", stream=f"{scope}/{stream}")
            if self._scheduler.commit_ended(request.key):
                return
            raise Postpone("a commit was scheduled meanwhile, for a new stream of the name") from None
        except OperationNotAllowed as error:
            raise Postpone(str(error)) from error
        except RejectedError as error:
            # The queue drops what is rejected, but a commit that was promised is never dropped.
            self._note_blocked(request.key, error)
            raise CommitFailed(f"{scope}/{stream}: {error}") from error
        except Exception as error:
            if not isinstance(error, FailedError | UnknownOutcome):  # those pass
                self._note_blocked(request.key, error)
            raise
        # Others of the stream have their turn. A run that looked at the order before the last round finds its record
        # changed, and one that looked later marked the state as its own, so nothing is freed under it.
        if run.hold is not None:
            await free(self._streams, run.hold)
        raise Postpone("more transactions wait for their commit")

    def _note_blocked(self, stream: str, error: Exception | None) -> None:
        """Keep what a repetition will not cure, until a round succeeds."""
        if error is None:
            self.blocked.pop(stream, None)
        elif len(self.blocked) < blocked_max or stream in self.blocked:
            self.blocked[stream] = str(error) or repr(error)
        BLOCKED_STREAMS.set(len(self.blocked))

    async def run_round(self, run: CommitRun) -> bool:
        """One round; False if there was nothing to commit."""
        scope, stream = run.scope, run.stream
        if run.hold is not None:
            # After a round of its own nothing may be left: then the stream need not be looked at again.
            state = await self._transactions.commit_state(scope, stream)
            if state.is_idle:
                return await self._holds.leave(run, None)
            context = await self._streams.open(scope, stream)
        else:
            context, state = await both_ended(
                self._streams.open(scope, stream), self._transactions.commit_state(scope, stream)
            )
            if await context.state() is StreamState.COMMITTING_TRANSACTIONS:
                # Another run may have ended a round in between, which moves the epoch and leaves the state.
                context = await self._streams.open(scope, stream)
        if state.committing.is_idle:
            state, batch = await self._next_batch(scope, stream, state, await _next_round_size(context, state))
            if not batch:
                return await self._holds.leave(run, context)
            context, state = await self._begin(run, context, state, batch)
        else:
            context = await self._holds.enter(run, context)
            _require_same(context, state)
        failpoint(ROUND_RECORDED)
        try:
            positions = await self._merge(context, state.committing)
        except SegmentSealed:
            if state.committing.rolling:
                raise
            self._log.warning("the stream moved on under a commit", stream=context.name)
            context, state = await self._made_rolling(run, state)
            failpoint(MADE_ROLLING)
            positions = await self._merge(context, state.committing)
        await self._finish(context, state, positions)
        return True

    # ---- beginning ---------------------------------------------------------------------------------------------------

    async def _next_batch(
        self, scope: str, stream: str, state: CommitState, count_max: int
    ) -> tuple[CommitState, list[tuple[uuid.UUID, CommittingTransaction]]]:
        """The transactions to commit next, and the order that they were found in. Drops those that a round completed
        before it crashed."""
        while True:
            state = await self._transactions.with_next_blocks(scope, stream, state, count_max)
            batch = state.queue.next_batch(state.blocks, count_max)
            found = await self._transactions.get_many(scope, stream, batch)
            gone = [identifier for identifier, record in zip(batch, found, strict=True) if record is None]
            if not gone:
                records = {identifier: item.record for identifier, item in zip(batch, found, strict=True) if item}
                for identifier, record in records.items():
                    if record.state is not TransactionState.COMMITTING:
                        raise DataCorruption(
                            f"transaction {identifier} of {scope}/{stream} is in the commit order, but is "
                            f"{record.state.value}"
                        )
                return state, [(identifier, _to_commit(identifier, record)) for identifier, record in records.items()]
            for identifier in gone:
                ended = await self._transactions.completed_state(scope, stream, identifier)
                if ended is not TransactionState.COMMITTED:
                    raise DataCorruption(
                        f"transaction {identifier} of {scope}/{stream} is in the commit order, but is {ended.value}"
                    )
            await self._transactions.drop_from_queue(scope, stream, state, gone)
            state = await self._transactions.commit_state(scope, stream)

    async def _begin(
        self,
        run: CommitRun,
        context: StreamContext,
        state: CommitState,
        batch: Sequence[tuple[uuid.UUID, CommittingTransaction]],
    ) -> tuple[StreamContext, CommitState]:
        _require_same(context, state)
        active = await context.current_epoch()
        epoch = names.transaction_epoch(batch[0][0])
        original = active if active.epoch == epoch else await context.epoch(epoch)
        rolling = active.reference_epoch != original.reference_epoch
        ids = [identifier for identifier, _ in batch]
        try:
            context, targets = await both_ended(
                self._holds.enter(run, context),
                self._merges.measure(context, ids, original, None if rolling else active),
            )
        except DataCorruption:
            await self._holds.withdraw(run, state)
            raise
        if (await context.current_epoch()).epoch != active.epoch:
            raise VersionConflict(f"the epoch of stream {context.name} moved while a commit took the stream's state")
        failpoint(STATE_MOVED)
        record = CommittingRecord(
            tuple(item for _, item in batch), epoch, active.epoch, rolling, self._clock.wall_ms(), targets
        )
        version = await self._transactions.begin_round(context.scope, context.stream, state, record)
        return context, dataclasses.replace(state, committing=record, committing_version=version)

    # ---- merging -----------------------------------------------------------------------------------------------------

    async def _merge(self, context: StreamContext, record: CommittingRecord) -> dict[int, list[int]]:
        """Carry the round out; per segment id, the offset behind each transaction."""
        active = await context.epoch(record.active_epoch)
        if record.rolling:
            return await self._rolling.roll(context, record, active)
        positions = await self._merges.merge_into(context, record, active)
        failpoint(MERGED)
        return positions

    async def _made_rolling(self, run: CommitRun, state: CommitState) -> tuple[StreamContext, CommitState]:
        """The round again, as a rolling one, after the stream moved on under a simple one.

        That takes a worker that gave the stream's state free too early, as former versions did. The state is taken
        again before anything is measured: a scale that has it ends first. What is merged already stays where it is;
        what is left goes into an epoch of its own.
        """
        context = await self._holds.enter(run, await self._streams.open(run.scope, run.stream))
        record = state.committing
        found = await self._transactions.commit_state(run.scope, run.stream)
        if (found.table, found.committing_version) != (state.table, state.committing_version):
            raise VersionConflict(f"another run carried on with the commits of stream {context.name}")
        active = await context.current_epoch()
        targets = await self._merges.left(context, record.ids, record.targets)
        rolling = dataclasses.replace(record, active_epoch=active.epoch, rolling=True, targets=tuple(targets))
        version = await self._transactions.begin_round(context.scope, context.stream, state, rolling)
        return context, CommitState(state.queue, state.queue_version, rolling, version, state.table)

    # ---- ending ------------------------------------------------------------------------------------------------------

    async def _finish(self, context: StreamContext, state: CommitState, positions: dict[int, list[int]]) -> None:
        record = state.committing
        scope, stream = context.scope, context.stream
        await self._note_writers(scope, stream, record, positions)
        await self._transactions.complete(scope, stream, record.ids, TransactionState.COMMITTED)
        self._completions.tell(record.ids)
        failpoint(COMPLETED)
        await self._transactions.remove(scope, stream, record.ids)
        failpoint(REMOVED)
        await self._transactions.end_round(scope, stream, state)
        COMMITTED.inc(len(record.transactions))
        ROUND_SECONDS.observe(max(0, self._clock.wall_ms() - record.started_ms) / 1000)
        failpoint(ROUND_ENDED)

    async def _note_writers(
        self, scope: str, stream: str, record: CommittingRecord, positions: dict[int, list[int]]
    ) -> None:
        """Per writer, the commit with the largest time (docs/controller-api.md 4.8)."""
        latest: dict[str, int] = {}
        for index, item in enumerate(record.transactions):
            known = latest.get(item.writer_id)
            if not item.writer_id or item.commit_time_ms is None:
                continue
            if known is None or item.commit_time_ms >= (record.transactions[known].commit_time_ms or 0):
                latest[item.writer_id] = index
        for index in latest.values():
            position = {identifier: lengths[index] for identifier, lengths in positions.items()}
            await self._listener.committed(scope, stream, record.transactions[index], position)


def _require_same(context: StreamContext, state: CommitState) -> None:
    if context.transactions_table != state.table:
        raise VersionConflict(f"stream {context.name} was made again while its commits were read")


def round_size(segments: int) -> int:
    """The most transactions of a round over this number of segments: its record fits a table value, however long the
    segments and the ids of its writers are."""
    return max(1, min(commit_batch_max, lengths_per_round_max // segments))


async def _next_round_size(context: StreamContext, state: CommitState) -> int:
    """Transactions that wait may be of an epoch that had more segments than the stream has now."""
    current, epoch = await context.current_epoch(), state.queue.next_epoch()
    original = current if epoch is None or epoch == current.epoch else await context.epoch(epoch)
    return round_size(max(len(current.segments), len(original.segments)))


def _to_commit(identifier: uuid.UUID, record: ActiveTransaction) -> CommittingTransaction:
    """A writer's id that is too long, as former versions took it, is left out: no mark is kept under it, and those of a
    round might not fit its record."""
    writer = record.writer_id if len(record.writer_id.encode()) <= writer_bytes_max else ""
    return CommittingTransaction(identifier.hex, writer, record.commit_time_ms)
