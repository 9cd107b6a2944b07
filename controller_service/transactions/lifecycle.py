"""Creates, renews, commits, aborts and times out transactions of one stream each (docs/controller-api.md 4)."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from controller_service.errors import IllegalState
from controller_service.queue.request_queue import RequestQueue
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.records import EpochRecord, SegmentRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import VersionedStore
from controller_service.store.writer_marks import check_writer
from controller_service.transactions.abort_transactions import AbortWorkflow
from controller_service.transactions.commit_order import CommitOrder
from controller_service.transactions.commit_transactions import CommitListener, CommitWorkflow
from controller_service.transactions.completions import Completions
from controller_service.transactions.counts import BEGUN
from controller_service.transactions.ids import TransactionIds
from controller_service.transactions.new_segments import NewSegments
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.records import (
    ActiveTransaction,
    RegistrationRecord,
    SetReference,
    transaction_segments,
)
from controller_service.transactions.scheduling import ABORT_KIND, COMMIT_KIND, WorkScheduler
from controller_service.transactions.stream_index import StreamIndex, StreamName
from controller_service.transactions.timeouts import TimedTransaction, Timers
from controller_service.transactions.transaction_store import Found, StreamTables, TransactionStore
from pravega_common.errors import (
    InvalidArgument,
    StreamNotFound,
)
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended, each_ended
from pravega_common.services.base import Service

lease_ms_min: Final = 10_000
lease_ms_max: Final = 600_000
execution_leases_max: Final = 1_000
"""A transaction lives at most this many times its first lease, and never longer than ``execution_ms_max``."""
execution_ms_max: Final = 24 * 3600 * 1000
lease_grace_s: Final = 15.0
"""How much later than its lease a transaction ends: some clients sleep a whole lease between two pings.

See docs/controller-api.md 4.4.
"""
timer_tick_s: Final = 0.4
timeouts_per_tick_max: Final = 64
timeout_retry_s: Final = 0.8
aborts_concurrent_max: Final = 32
"""Transactions that the sealing of a stream aborts at the same time."""
sweep_period_s: Final = 60.0
"""How often a controller looks for transactions that a stopped one left behind."""
sweeps_at_once_max: Final = 16
"""Streams that a sweep looks at at the same time."""
sweep_time_max_s: Final = 15.0
"""Time for one stream of a sweep, which comes to it again: a container that is away holds a call up for a minute."""

RECORD_INSERTED = register("transaction_create.record_inserted")
SEGMENTS_CREATED = register("transaction_create.segments_created")
COMMIT_MARKED = register("transaction_commit.marked")
ABORT_MARKED = register("transaction_abort.marked")


@dataclass(frozen=True, slots=True)
class CreatedTransaction:
    """``segments``: what the client writes to. Their ids are generalised to the transaction's epoch: such a segment
    need not exist, but the transaction's segment of that name does (docs/controller-api.md 4.2)."""

    id: uuid.UUID
    segments: tuple[SegmentRecord, ...]


class BindingSets(Protocol):
    """The transaction sets, as seen from the transactions that are bound to them or registered for them."""

    async def holds(self, reference: SetReference) -> bool:
        """Whether the set may still commit its members, or has."""
        ...

    async def open_until_ms(self, registration: RegistrationRecord) -> int:
        """Wall time up to which the calls of its batch keep a transaction open; 0 if they do not any more."""
        ...


class TransactionService(Service):
    """One per controller. All state is in the store; any instance may serve any call."""

    def __init__(
        self,
        *,
        store: VersionedStore,
        streams: StreamStore,
        segments: SegmentAccess,
        queue: RequestQueue,
        clock: Clock,
        listener: CommitListener,
        again: SecondDeletion,
        live_owners: Callable[[], Awaitable[set[str]]],
    ) -> None:
        """``live_owners`` tells which controllers hold a lease now; this one counts as alive by itself."""
        super().__init__("transactions")
        self.records = TransactionStore(streams)
        self.order = CommitOrder(self.records)
        self._new_segments = NewSegments(streams, self.records, segments, clock)
        self.index = StreamIndex(store, streams.instance, clock, live_owners)
        self.scheduler = WorkScheduler(queue, streams.instance)
        self._streams = streams
        self._segments = segments
        self._clock = clock
        self._again = again
        self._ids = TransactionIds(store)
        self._timers = Timers()
        self._sets: BindingSets | None = None
        self._unfinished: dict[tuple[str, str], CommitState] = {}
        self.completions = Completions()
        self._commits = CommitWorkflow(self.records, segments, self.scheduler, clock, self.completions, listener)
        queue.register(COMMIT_KIND, self._commits.handle)
        queue.register(ABORT_KIND, AbortWorkflow(self.records, segments, self.scheduler).handle)

    def attach_sets(self, sets: BindingSets) -> None:
        """Called once by ``TransactionSetService``, before either is started."""
        self._sets = sets

    @property
    def blocked(self) -> dict[str, str]:
        """Streams whose commits need an operator, and why, as far as this controller tried."""
        return self._commits.blocked

    async def on_start(self) -> None:
        await all_ended((self._ids.start(), self.records.start(), self.index.create_tables()))
        self.spawn(self._run_timers(), "timers")
        self.spawn(self._sweep_periodically(), "sweep")

    # ---- create ------------------------------------------------------------------------------------------------------

    async def create(self, scope: str, stream: str, lease_ms: int) -> CreatedTransaction:
        """Begin a transaction.

        ``InvalidArgument`` for a lease outside 10 s..600 s, ``StreamNotFound``, ``IllegalState`` for a stream that is
        being created or sealed.
        """
        if not lease_ms_min <= lease_ms <= lease_ms_max:
            raise InvalidArgument(f"a lease of {lease_ms} ms: it must be in {lease_ms_min}..{lease_ms_max} ms")
        context = await self._streams.open(scope, stream)
        await self._require_open(context)
        active = await context.current_epoch()
        identifier = await self._ids.next(active.reference_epoch)
        numbers = tuple(segment.number for segment in active.segments)
        now_ms = self._clock.wall_ms()
        record = ActiveTransaction(
            TransactionState.OPEN,
            now_ms,
            lease_ms,
            now_ms + lease_ms,
            now_ms + min(execution_leases_max * lease_ms, execution_ms_max),
            numbers,
        )
        tables = self.records.remember(StreamTables(scope, stream, context.stream_id, context.transactions_table))
        await self.index.use(scope, stream)
        version = await self.records.insert(tables, identifier, record)
        BEGUN.inc()
        failpoint(RECORD_INSERTED)
        made: asyncio.Future[StreamContext] = asyncio.get_running_loop().create_future()
        made.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Not by the caller itself, who may be cut off at any moment: segments of what ended must be taken away again.
        self.spawn(self._make_segments(context, identifier, record, made), "segments of a transaction")
        fresh = await asyncio.shield(made)
        failpoint(SEGMENTS_CREATED)
        self._arm(TimedTransaction(scope, stream, identifier), lease_ms, version)
        # Sealing looks for open transactions once, after the state has moved: this one may have come too late for it.
        if await fresh.state() in (StreamState.SEALING, StreamState.SEALED):
            await self.abort(scope, stream, identifier)
            await self._require_open(fresh)
        # So does the expiry of epochs: this one's may have lost its record.
        if (await fresh.history()).oldest_epoch > active.reference_epoch:
            await self.abort(scope, stream, identifier)
            raise IllegalState(f"Stream: {stream}: epoch {active.reference_epoch} was truncated meanwhile")
        return CreatedTransaction(identifier, _generalised(active))

    async def _make_segments(
        self,
        context: StreamContext,
        identifier: uuid.UUID,
        record: ActiveTransaction,
        made: asyncio.Future[StreamContext],
    ) -> None:
        try:
            made.set_result(await self._new_segments.create(context, identifier, record.segments, record.lease_ms))
        except asyncio.CancelledError:
            made.cancel()
            raise
        except BaseException as error:
            made.set_exception(error)

    @staticmethod
    async def _require_open(context: StreamContext) -> None:
        state = await context.state()
        if state in (StreamState.CREATING, StreamState.SEALING, StreamState.SEALED):
            raise IllegalState(f"Stream: {context.stream} State: {state.name}")

    # ---- ping --------------------------------------------------------------------------------------------------------

    async def ping(self, scope: str, stream: str, identifier: uuid.UUID, lease_ms: int) -> PingStatus:
        """Renew a lease; the checks are in the order of docs/controller-api.md 4.4."""
        if not self.is_running:
            return PingStatus.DISCONNECTED

        async def attempt() -> PingStatus:
            found = await self._found(scope, stream, identifier)
            if not isinstance(found, Found):
                return _PING_OF_STATE[found]
            record = found.record
            if record.state is not TransactionState.OPEN:
                return _PING_OF_STATE[record.state]
            now_ms = self._clock.wall_ms()
            if lease_ms > lease_ms_max:
                return PingStatus.LEASE_TOO_LARGE
            if now_ms + lease_ms > record.execution_expiry_ms:
                return PingStatus.MAX_EXECUTION_TIME_EXCEEDED
            if record.bound_to is None:
                renewed = dataclasses.replace(record, lease_ms=lease_ms, lease_expiry_ms=now_ms + lease_ms)
                [version] = await self.records.put_many(scope, stream, [(identifier, renewed, found.version)])
                self._arm(TimedTransaction(scope, stream, identifier), lease_ms, version)
            return PingStatus.OK

        try:
            return await self.records.retrying(attempt)
        except StreamNotFound:
            return PingStatus.UNKNOWN

    # ---- commit and abort --------------------------------------------------------------------------------------------

    async def commit(
        self, scope: str, stream: str, identifier: uuid.UUID, writer_id: str = "", commit_time_ms: int | None = None
    ) -> bool:
        """Decide to commit; True (SUCCESS) also if that was decided before. False (FAILURE) for a transaction that is
        unknown, aborted, or bound to a transaction set, which alone decides over it. ``InvalidArgument`` for an id of a
        writer under which no mark is kept."""

        async def attempt() -> bool:
            [found], order = await self.records.get_with_commits(scope, stream, [identifier])
            if found is None:
                ended = await self.records.completed_state(scope, stream, identifier)
                return ended is TransactionState.COMMITTED
            record = found.record
            if record.state is TransactionState.OPEN:
                if await self._is_held(record):
                    return False
                if writer_id:
                    check_writer(writer_id)
                marked = dataclasses.replace(
                    record,
                    state=TransactionState.COMMITTING,
                    writer_id=writer_id,
                    commit_time_ms=commit_time_ms,
                    bound_to=None,
                )
                await self.index.use(scope, stream)
                await self.order.add(scope, stream, [(identifier, marked, found.version)], order)
                failpoint(COMMIT_MARKED)
            elif record.state is not TransactionState.COMMITTING:
                return False
            self._timers.cancel(TimedTransaction(scope, stream, identifier))
            await self.scheduler.schedule_commit(scope, stream)
            return True

        try:
            return await self.records.retrying(attempt)
        except StreamNotFound:
            return False

    async def abort(self, scope: str, stream: str, identifier: uuid.UUID) -> bool:
        """Decide to abort; the mirror image of ``commit``."""

        async def attempt() -> bool:
            found = await self._found(scope, stream, identifier)
            if not isinstance(found, Found):
                return found is TransactionState.ABORTED
            return await self._abort_found(TimedTransaction(scope, stream, identifier), found)

        try:
            return await self.records.retrying(attempt)
        except StreamNotFound:
            return False

    async def _abort_found(self, transaction: TimedTransaction, found: Found) -> bool:
        """Abort exactly the version found; ``VersionConflict`` if it changed, False if its state refuses it."""
        record = found.record
        scope, stream, identifier = transaction.scope, transaction.stream, transaction.id
        if record.state is TransactionState.OPEN:
            if await self._is_held(record):
                return False
            marked = dataclasses.replace(record, state=TransactionState.ABORTING, bound_to=None)
            await self.index.use(scope, stream)
            await self.records.put_many(scope, stream, [(identifier, marked, found.version)])
            failpoint(ABORT_MARKED)
        elif record.state is not TransactionState.ABORTING:
            return False
        self._timers.cancel(transaction)
        await self.scheduler.schedule_abort(scope, stream, identifier)
        return True

    async def _is_held(self, record: ActiveTransaction) -> bool:
        """Whether a living set holds the transaction; what a refused set left bound is free."""
        if record.bound_to is None or self._sets is None:
            return False
        return await self._sets.holds(record.bound_to)

    async def end_all(self, scope: str, stream: str, stream_id: str) -> bool:
        """For the sealing and the deletion of a stream: abort what is open; true once no transaction is left, also none
        that is being committed or cleaned up. To be repeated until then.

        By the stream's id: a run that stood still may come when there is another stream of the name.
        """
        try:
            active = await self.records.active_of(scope, stream, stream_id)
            # Aborting ones as well: the controller that decided it may have died before it had them cleaned up.
            ending = [one for one, found in active if found.record.state is not TransactionState.COMMITTING]
            await self._again.promise(list(self._about_to_be_made(scope, stream, active)))
            for start in range(0, len(ending), aborts_concurrent_max):
                chunk = ending[start : start + aborts_concurrent_max]
                await all_ended(self.abort(scope, stream, identifier) for identifier in chunk)
            return not active and (await self.records.commit_state(scope, stream)).is_idle
        except StreamNotFound:
            return True

    def _about_to_be_made(self, scope: str, stream: str, active: Sequence[tuple[uuid.UUID, Found]]) -> Iterator[str]:
        """The segments of those that were begun just now, whose creator may not know yet that they end."""
        for identifier, found in active:
            record = found.record
            if record.state is TransactionState.OPEN and self._again.may_come(record.created_ms):
                yield from transaction_segments(scope, stream, identifier, record.segments)

    # ---- state -------------------------------------------------------------------------------------------------------

    async def transaction_state(self, scope: str, stream: str, identifier: uuid.UUID) -> TransactionState:
        """Never an error for something unknown."""
        try:
            found = await self._found(scope, stream, identifier)
        except StreamNotFound:
            return TransactionState.UNKNOWN
        return found.record.state if isinstance(found, Found) else found

    async def list_completed(self, scope: str, stream: str) -> list[tuple[uuid.UUID, TransactionState]]:
        """At most 500, the newest first; empty for an unknown stream."""
        try:
            return await self.records.list_completed(scope, stream)
        except StreamNotFound:
            return []

    async def _found(self, scope: str, stream: str, identifier: uuid.UUID) -> Found | TransactionState:
        """The active record, else how the transaction ended."""
        found = await self.records.get(scope, stream, identifier)
        return found if found is not None else await self.records.completed_state(scope, stream, identifier)

    # ---- time --------------------------------------------------------------------------------------------------------

    def _arm(self, transaction: TimedTransaction, remaining_ms: int, version: int) -> None:
        deadline_s = self._clock.monotonic_s() + max(0, remaining_ms) / 1000 + lease_grace_s
        if not self._timers.arm(transaction, deadline_s, version):
            self.log.warning("too many transactions to watch", transaction=str(transaction.id))

    async def _run_timers(self) -> None:
        while True:
            await self._clock.sleep(timer_tick_s)
            due = self._timers.due(self._clock.monotonic_s(), timeouts_per_tick_max)
            await all_ended(self._time_out(transaction, version) for transaction, version in due)

    async def _time_out(self, transaction: TimedTransaction, version: int) -> None:
        try:
            await self._expire(transaction, version)
        except StreamNotFound:
            return
        except Exception as error:  # also of a bug, or of a record that cannot be read: the controller goes on
            self.log.info("time-out is tried again", transaction=str(transaction.id), error=repr(error))
            self._timers.arm(transaction, self._clock.monotonic_s() + timeout_retry_s, version)

    async def _expire(self, transaction: TimedTransaction, version: int) -> None:
        """Abort a transaction that nobody renewed since ``version`` was seen, unless a set or a batch keeps it."""
        found = await self.records.get(transaction.scope, transaction.stream, transaction.id)
        if found is None or found.record.state is not TransactionState.OPEN:
            return
        record = found.record
        if found.version != version:
            # Renewed or bound through another controller, whose time of day may differ from ours.
            self._arm(transaction, record.lease_ms, found.version)
            return
        if await self._is_held(record):
            self._arm(transaction, record.lease_ms, found.version)
            return
        if record.registration is not None and self._sets is not None:
            until_ms = await self._sets.open_until_ms(record.registration)
            now_ms = self._clock.wall_ms()
            if until_ms > now_ms:
                self._arm(transaction, until_ms - now_ms, found.version)
                return
        self.log.info(
            "transaction timed out", stream=f"{transaction.scope}/{transaction.stream}", id=str(transaction.id)
        )
        await self._abort_found(transaction, found)

    # ---- what others left --------------------------------------------------------------------------------------------

    async def _sweep_periodically(self) -> None:
        at_start = True
        while True:
            try:
                await self.sweep(at_start)
                at_start = False
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("sweep failed", error=repr(error), retry_s=sweep_period_s)
            await self._clock.sleep(sweep_period_s)

    async def sweep(self, at_start: bool = False) -> None:
        """Look after the streams of this controller and those that others left: watch open transactions, and go on with
        what is aborting, and with commits that did not move since the last sweep (at start, and of those that others
        left: with all).

        What it costs goes with the streams in use, not with those that ever had a transaction.
        """
        await self.index.stand_again()
        former = await self.index.former_streams()
        if former:
            await self.index.forget_former(await self._take_over(former))
        for owner in await self.index.left():
            streams = await self.index.streams_of(owner)
            if len(await self._take_over(streams)) == len(streams):
                self.log.info("transactions of a controller taken over", owner=owner, streams=len(streams))
                await self.index.forget_owner(owner)

        async def look(name: StreamName) -> None:
            await self._try_sweep(*name, at_start)

        await each_ended(look, self.index.own(), at_once=sweeps_at_once_max)

    async def _take_over(self, streams: Sequence[StreamName]) -> list[StreamName]:
        """Look after streams from now on; those of which that succeeded."""

        async def take(name: StreamName) -> bool:
            await self.index.use(*name)
            return await self._try_sweep(*name, True)

        taken = await each_ended(take, streams, at_once=sweeps_at_once_max)
        return [name for name, is_taken in zip(streams, taken, strict=True) if is_taken]

    async def _try_sweep(self, scope: str, stream: str, at_start: bool) -> bool:
        try:
            async with asyncio.timeout(sweep_time_max_s):
                await self._sweep_stream(scope, stream, at_start)
        except StreamNotFound:
            self._unfinished.pop((scope, stream), None)
            await self.index.drop(scope, stream)
        except Exception as error:
            # Whatever is wrong with one stream, also a record that cannot be read: the others come next.
            self.log.warning("sweep of a stream failed", stream=f"{scope}/{stream}", error=repr(error))
            return False
        return True

    async def _sweep_stream(self, scope: str, stream: str, at_start: bool) -> None:
        active = await self.records.active(scope, stream)
        for identifier, found in active:
            transaction = TimedTransaction(scope, stream, identifier)
            if found.record.state is TransactionState.OPEN:
                if transaction not in self._timers:
                    # The expiry on record is of its writer's time of day: here a whole lease begins at first sight.
                    self._arm(transaction, found.record.lease_ms, found.version)
            elif found.record.state is TransactionState.ABORTING:
                await self.scheduler.schedule_abort(scope, stream, identifier)
        state = await self.records.commit_state(scope, stream)
        before = self._unfinished.pop((scope, stream), None)
        if state.is_idle:
            if not active:
                await self.index.drop_if_unused(scope, stream)
            return
        # A second worker on the stream would do no harm, but it would do double work.
        if at_start or state == before:
            await self.scheduler.schedule_commit(scope, stream)
        else:
            self._unfinished[(scope, stream)] = state


_PING_OF_STATE: Final = {
    TransactionState.COMMITTING: PingStatus.COMMITTED,
    TransactionState.COMMITTED: PingStatus.COMMITTED,
    TransactionState.ABORTING: PingStatus.ABORTED,
    TransactionState.ABORTED: PingStatus.ABORTED,
    TransactionState.UNKNOWN: PingStatus.UNKNOWN,
}


def _generalised(active: EpochRecord) -> tuple[SegmentRecord, ...]:
    """The active segments with their ids rewritten to the reference epoch, which is the transaction's."""
    return tuple(dataclasses.replace(segment, creation_epoch=active.reference_epoch) for segment in active.segments)
