"""Makes committing transactions readable, in the commit order of their stream (docs/controller-api.md 4.5).

One round takes up to 100 transactions of the lowest epoch that has any. What it takes, and how long every source and
target is, is durable before the first merge. From then on the store must have a record of the merge of a source that is
missing; a source that is missing before is an error, never a success.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from prometheus_client import Gauge

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone, Request
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import duplicate_epoch
from controller_service.store.holds import Hold, free, stage_epoch, take
from controller_service.store.records import (
    EpochRecord,
    SealedSegmentRecord,
    StreamState,
    sealed_segment_key,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.commit_queue import commit_batch_max
from controller_service.transactions.completions import Completions
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.records import (
    CommittingRecord,
    CommittingTransaction,
    MergeTarget,
    transaction_segments,
)
from controller_service.transactions.scheduling import WorkScheduler
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common import names
from pravega_common.errors import (
    DataCorruption,
    FailedError,
    RejectedError,
    SegmentNotFound,
    SegmentSealed,
    StreamNotFound,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.model.transactions import TransactionState
from pravega_common.names import split_scoped_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register

STATE_MOVED = register("transaction_commit.state_moved")
ROUND_RECORDED = register("transaction_commit.round_recorded")
MADE_ROLLING = register("transaction_commit.made_rolling")
DUPLICATES_CREATED = register("transaction_commit.duplicates_created")
MERGED = register("transaction_commit.merged")
DUPLICATES_SEALED = register("transaction_commit.duplicates_sealed")
EPOCHS_RECORDED = register("transaction_commit.epochs_recorded")
ACTIVE_SEALED = register("transaction_commit.active_sealed")
EPOCH_MOVED = register("transaction_commit.epoch_moved")
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
calls_concurrent_max: Final = 64
"""Calls to the segment stores that one round keeps in flight."""


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


@dataclass(slots=True)
class CommitRun:
    """One run of a commit request, with the state that it took; None too while the stream is being sealed."""

    scope: str
    stream: str
    hold: Hold | None = None


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
        self._segments = segments
        self._scheduler = scheduler
        self._clock = clock
        self._completions = completions
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
                return await self._leave(run, None)
            context = await self._streams.open(scope, stream)
        else:
            context, state = await asyncio.gather(
                self._streams.open(scope, stream), self._transactions.commit_state(scope, stream)
            )
        if state.committing.is_idle:
            segments = len((await context.current_epoch()).segments)
            count_max = max(1, min(commit_batch_max, lengths_per_round_max // segments))
            state, batch = await self._next_batch(scope, stream, state, count_max)
            if not batch:
                return await self._leave(run, context)
            context, state = await self._begin(run, context, state, batch)
        else:
            context = await self._enter(run, context)
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
                return state, [
                    (identifier, CommittingTransaction(identifier.hex, record.writer_id, record.commit_time_ms))
                    for identifier, record in records.items()
                ]
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
        active = await context.current_epoch()
        epoch = names.transaction_epoch(batch[0][0])
        original = active if active.epoch == epoch else await context.epoch(epoch)
        rolling = active.reference_epoch != original.reference_epoch
        ids = [identifier for identifier, _ in batch]
        try:
            context, targets = await all_ended(
                self._enter(run, context), self._measure(context, ids, original, None if rolling else active)
            )
        except DataCorruption:
            await self._withdraw(run, state)
            raise
        if (await context.current_epoch()).epoch != active.epoch:
            raise VersionConflict(f"the epoch of stream {context.name} moved while a commit took the stream's state")
        failpoint(STATE_MOVED)
        record = CommittingRecord(
            tuple(item for _, item in batch), epoch, active.epoch, rolling, self._clock.wall_ms(), targets
        )
        version = await self._transactions.begin_round(context.scope, context.stream, state, record)
        return context, dataclasses.replace(state, committing=record, committing_version=version)

    async def _enter(self, run: CommitRun, context: StreamContext) -> StreamContext:
        """Keep other workflows off the stream's epochs, also if another run of commits does; the stream as it is then.

        A stream that is being sealed lets its last commits through.
        """
        try:
            context, run.hold = await take(
                self._streams, run.scope, run.stream, StreamState.COMMITTING_TRANSACTIONS, "", found=context
            )
            return context
        except SegmentSealed:
            context = await self._streams.open(run.scope, run.stream)
            if await context.state() is StreamState.SEALING:
                run.hold = None
                return context
            raise

    async def _withdraw(self, run: CommitRun, state: CommitState) -> None:
        """Leave before a round, since what is next in the order cannot be committed: others may use the stream.

        The record of the idle round is written again first, so that no other run begins one on what it read before.
        """
        if run.hold is not None:
            await self._transactions.begin_round(run.scope, run.stream, state, state.committing)
            await free(self._streams, run.hold)

    async def _leave(self, run: CommitRun, context: StreamContext | None) -> bool:
        """Free the state, unless another run took it since. True: new work has come, and nothing was freed.

        ``context``: the stream as it is, for a run that does not hold it.

        No round can begin behind this: the order was empty after this run took the state, so a run that read an order
        that was not empty finds the round's record changed.
        """
        if run.hold is None and context is not None:
            if await context.state() is not StreamState.COMMITTING_TRANSACTIONS:
                return False
            # Another run is at its end, or died there: its request came here, or stands where it will be carried out.
            await self._enter(run, context)
            state = await self._transactions.commit_state(run.scope, run.stream)
            if not state.is_idle:
                return True
        if run.hold is not None:
            await free(self._streams, run.hold)
            run.hold = None
        return False

    async def _measure(
        self, context: StreamContext, ids: Sequence[uuid.UUID], original: EpochRecord, into: EpochRecord | None
    ) -> tuple[MergeTarget, ...]:
        """The lengths of all sources, and of the targets in epoch ``into`` (None: they are yet to be made).

        ``DataCorruption`` if a source is missing: nothing has merged it yet.
        """
        numbers = [segment.number for segment in original.segments]
        sources = [name for number in numbers for name in _sources(context, ids, number)]
        targets = [] if into is None else _names_by_number(context, into, numbers)
        try:
            measured = await self._infos([*sources, *targets])
        except SegmentNotFound as error:
            raise DataCorruption(
                f"segment {error.segment} of {context.name} is missing before its transaction was merged"
            ) from error
        lengths = [info.length for info in measured]
        before = lengths[len(sources) :] or [0] * len(numbers)
        per_target = len(ids)
        return tuple(
            MergeTarget(number, before[index], tuple(lengths[index * per_target : (index + 1) * per_target]))
            for index, number in enumerate(numbers)
        )

    async def _infos(self, segments: Sequence[str]) -> list[SegmentInfo]:
        infos: list[SegmentInfo] = []
        for start in range(0, len(segments), calls_concurrent_max):
            chunk = segments[start : start + calls_concurrent_max]
            infos.extend(await asyncio.gather(*map(self._segments.info, chunk)))
        return infos

    # ---- merging -----------------------------------------------------------------------------------------------------

    async def _merge(self, context: StreamContext, record: CommittingRecord) -> dict[int, list[int]]:
        """Carry the round out; per segment id, the offset behind each transaction."""
        active = await context.epoch(record.active_epoch)
        if record.rolling:
            return await self._roll(context, record, active)
        positions = await self._merge_into(context, record, active)
        failpoint(MERGED)
        return positions

    async def _made_rolling(self, run: CommitRun, state: CommitState) -> tuple[StreamContext, CommitState]:
        """The round again, as a rolling one, after the stream moved on under a simple one.

        That takes a worker that gave the stream's state free too early, as former versions did. The state is taken
        again before anything is measured: a scale that has it ends first. What is merged already stays where it is;
        what is left goes into an epoch of its own.
        """
        context = await self._enter(run, await self._streams.open(run.scope, run.stream))
        record = state.committing
        found = await self._transactions.commit_state(run.scope, run.stream)
        if found.committing_version != state.committing_version:
            raise VersionConflict(f"another run carried on with the commits of stream {context.name}")
        active = await context.current_epoch()
        ids = record.ids

        async def left(source: str) -> int:
            try:
                return (await self._segments.info(source)).length
            except SegmentNotFound:
                return 0

        targets = [
            MergeTarget(
                target.number, 0, tuple([await left(source) for source in _sources(context, ids, target.number)])
            )
            for target in record.targets
        ]
        rolling = dataclasses.replace(record, active_epoch=active.epoch, rolling=True, targets=tuple(targets))
        version = await self._transactions.begin_round(context.scope, context.stream, state, rolling)
        return context, CommitState(state.queue, state.queue_version, rolling, version)

    async def _merge_into(
        self, context: StreamContext, record: CommittingRecord, epoch: EpochRecord
    ) -> dict[int, list[int]]:
        ids = record.ids
        by_number = {segment.number: segment for segment in epoch.segments}

        async def merge(target: MergeTarget) -> tuple[int, list[int]]:
            segment = by_number[target.number]
            name = segment.name(context.scope, context.stream)
            sources = _sources(context, ids, target.number)
            lengths = await self._merge_present(record, target, name, sources)
            self._verify(record, target, name, lengths)
            return segment.segment_id, lengths

        return dict(await all_ended(*map(merge, record.targets)))

    async def _merge_present(
        self, record: CommittingRecord, target: MergeTarget, segment: str, sources: list[str]
    ) -> list[int]:
        """Merge the sources; the target's length after each.

        The store answers a merge that is made again from its record. A source that is missing without one is an error,
        unless it is known to hold nothing (a round that went on as a rolling one merged it elsewhere before), or an
        operator accepted the loss.
        """
        lengths_known = dict(zip(sources, target.source_lengths, strict=True))
        left = list(sources)
        while True:
            try:
                merged = dict(zip(left, await self._segments.merge_batch(segment, left), strict=True))
                break
            except SegmentNotFound as error:
                if error.segment not in left:
                    raise
                if lengths_known[error.segment] and not record.loss_accepted:
                    raise DataCorruption(
                        f"{error.segment} of {lengths_known[error.segment]} bytes is missing, and {segment} has no "
                        "record of its merge: a transaction segment vanished without having been merged"
                    ) from error
                left.remove(error.segment)
        if not merged:
            return [(await self._segments.info(segment)).length] * len(sources)
        lengths, before = [], min(merged.values())
        for source in sources:
            before = merged.get(source, before)
            lengths.append(before)
        return lengths

    async def _roll(
        self, context: StreamContext, record: CommittingRecord, active: EpochRecord
    ) -> dict[int, list[int]]:
        """The stream has moved to other segments: the round gets an epoch of its own, a duplicate of the
        transactions' epoch, and a duplicate of the active epoch follows it."""
        original = await context.epoch(record.epoch)
        started_ms = max(record.started_ms, active.created_ms + 1)
        holding = duplicate_epoch(original, active.epoch + 1, started_ms, active)
        following = duplicate_epoch(active, active.epoch + 2, started_ms + 1, active)
        configuration = (await context.configuration()).configuration
        rollover = configuration.rollover_size_bytes
        holding_names = holding.names(context.scope, context.stream)
        await all_ended(
            self._segments.create_segments(holding_names, rollover_size_bytes=rollover),
            self._segments.create_segments(
                following.names(context.scope, context.stream),
                scale_type=int(configuration.scaling.scale_type),
                target_rate=configuration.scaling.target_rate,
                rollover_size_bytes=rollover,
            ),
        )
        failpoint(DUPLICATES_CREATED)
        positions = await self._fill_duplicates(context, record, holding)
        sizes = {identifier: lengths[-1] for identifier, lengths in positions.items()}
        failpoint(DUPLICATES_SEALED)
        await self._record_epochs(context, active, holding, following, sizes)
        failpoint(EPOCHS_RECORDED)
        await self._segments.seal_segments(active.names(context.scope, context.stream))
        failpoint(ACTIVE_SEALED)
        await self._move_epoch(context, active, following)
        failpoint(EPOCH_MOVED)
        return positions

    async def _fill_duplicates(
        self, context: StreamContext, record: CommittingRecord, holding: EpochRecord
    ) -> dict[int, list[int]]:
        """Merge into the duplicates and seal them. They are sealed only after every merge was verified: in a
        repetition, sealed ones hold everything, and their length proves it."""
        infos = await self._infos(holding.names(context.scope, context.stream))
        if not any(info.is_sealed for info in infos):
            positions = await self._merge_into(context, record, holding)
            failpoint(MERGED)
        else:
            lengths = {segment.number: info.length for segment, info in zip(holding.segments, infos, strict=True)}
            positions = {}
            targets = _names_by_number(context, holding, [target.number for target in record.targets])
            for target, name in zip(record.targets, targets, strict=True):
                after = [lengths[target.number]] * len(target.source_lengths)
                self._verify(record, target, name, after)
                positions[names.segment_id(target.number, holding.epoch)] = after
        await self._segments.seal_segments(holding.names(context.scope, context.stream))
        return positions

    def _verify(self, record: CommittingRecord, target: MergeTarget, segment: str, lengths_after: list[int]) -> None:
        try:
            target.verify(segment, lengths_after)
        except DataCorruption as error:
            if not record.loss_accepted:
                raise
            self._log.error("bytes are missing in a commit, as an operator accepted", error=str(error))

    async def _record_epochs(
        self,
        context: StreamContext,
        active: EpochRecord,
        holding: EpochRecord,
        following: EpochRecord,
        sizes: dict[int, int],
    ) -> None:
        """Successors are on record before the stores seal the active segments, so that a reader that finds one sealed
        finds what follows it."""

        async def change(fresh: StreamContext) -> None:
            for epoch in (holding, following):
                await stage_epoch(fresh, epoch)
            sealed = await fresh.sealed([*active.segment_ids, *holding.segment_ids])
            for identifier in active.segment_ids:
                if identifier not in sealed:
                    fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(holding.epoch))
            for identifier in holding.segment_ids:
                if identifier not in sealed:
                    size = sizes[identifier]
                    fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(following.epoch, size))

        await self._streams.update(context.scope, context.stream, change)

    async def _move_epoch(self, context: StreamContext, active: EpochRecord, following: EpochRecord) -> None:
        """Record the sizes of what was sealed and make the last duplicate the current epoch."""
        infos = await self._infos(active.names(context.scope, context.stream))
        sizes = {segment.segment_id: info.length for segment, info in zip(active.segments, infos, strict=True)}

        async def change(fresh: StreamContext) -> None:
            current = (await fresh.current_epoch()).epoch
            if current >= following.epoch:
                return
            if current != active.epoch:
                raise DataCorruption(
                    f"stream {fresh.name} is at epoch {current}, a commit moves it from {active.epoch} to "
                    f"{following.epoch}: another run changed the epochs at the same time"
                )
            await fresh.sealed(list(sizes))
            for identifier, size in sizes.items():
                fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(active.epoch + 1, size))
            await fresh.epoch(following.epoch)
            fresh.stage_current(following)

        await self._streams.update(context.scope, context.stream, change)

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


async def all_ended(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all, once none of them is in flight any more; then the error of one if any failed.

    That a segment is sealed counts only if nothing else went wrong: it makes the caller measure what the others did.
    """
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, SegmentSealed)), errors[0])
    return outcomes


def _names_by_number(context: StreamContext, epoch: EpochRecord, numbers: Sequence[int]) -> list[str]:
    """The names of an epoch's segments with these numbers."""
    by_number = {segment.number: segment for segment in epoch.segments}
    return [by_number[number].name(context.scope, context.stream) for number in numbers]


def _sources(context: StreamContext, ids: Sequence[uuid.UUID], number: int) -> list[str]:
    """The segments with this number of all transactions, in commit order."""
    return [
        name for identifier in ids for name in transaction_segments(context.scope, context.stream, identifier, [number])
    ]
