"""Commits the transactions of a batch, also of several streams, as one set.

The order of durable steps is the proof: the set is pending on its sink's record; every member is bound to it; one
compare-and-set makes it committed. Before that step the set can only be refused, after it only be finished, by
whichever instance gets to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.sets import transaction_set
from controller_service.sets.members import LostMember, MemberTransactions
from controller_service.sets.registration_janitor import RegistrationJanitor
from controller_service.sets.sink_index import IndexedSink, SinkIndex
from controller_service.sets.sink_secrets import hash_of, is_stranger, refusal
from controller_service.sets.sink_store import FoundSink, Registered, SinkStore, shard_of
from controller_service.sets.transaction_set import (
    AllBound,
    BatchesCleared,
    Event,
    MemberRecord,
    RefusedSet,
    SetRecord,
    SetRecordState,
    SinkRecord,
    Step,
    StreamsOrdered,
    Verdict,
    destination_of,
    sink_key,
)
from controller_service.sets.validation import check_batch, check_commit, check_sink
from controller_service.store.versioned_store import ABSENT, VersionedStore
from controller_service.transactions.lifecycle import TransactionService
from controller_service.transactions.records import RegistrationRecord, SetReference
from pravega_common.errors import AccessDenied, InvalidArgument, NotFound, PravegaError, Throttled, VersionConflict
from pravega_common.model.transaction_sets import label_of
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint_async, register
from pravega_common.runtime.joined import all_ended, both_ended
from pravega_common.services.base import Service
from pravega_common.services.retrying import RetryLimits, compare_and_set, is_lost_race

undecided_grace_ms: Final = 600_000
"""How long the transactions of an undecided batch stay open after the last call of any of its tasks."""
pending_max_ms: Final = 60_000
"""A set that is pending for longer is refused: its controller died, or its members cannot be reached."""
record_kept_ms: Final = 90 * 24 * 3600 * 1000
"""How long a sink's record outlives its last use."""
sweep_period_s: Final = 15.0
sweeps_at_once_max: Final = 16
"""Sinks that a sweep looks at at the same time."""
sweep_time_max_s: Final = 15.0
"""Time for one sink of a sweep, which comes to it again: a container that is away holds a call up for a minute."""
finish_looks_max: Final = 20
"""How often a controller looks whether a committed set is readable, before it leaves it to the sweep."""
finish_look_first_s: Final = 0.2
finish_look_last_s: Final = 2.0
"""Between two looks; the wait ends at once when this controller made the members readable itself."""
readable_wait_max_ms: Final = 1_000
"""How long a question about a set may wait until it is readable."""
finishing_max: Final = 1_000
"""Sets that one controller makes readable at the same time."""
cas_limits: Final = RetryLimits(attempts_max=50, pause_s=lambda lost: 0.0 if lost <= 2 else 0.005 * min(lost - 1, 20))
"""Attempts to change a sink's record before its conflict is reported."""

PENDING_RECORDED = register("transaction_set.pending_recorded")
MEMBERS_BOUND = register("transaction_set.members_bound")
COMMIT_RECORDED = register("transaction_set.commit_recorded")
MEMBERS_ORDERED = register("transaction_set.members_ordered")
ORDER_RECORDED = register("transaction_set.order_recorded")
MEMBERS_READABLE = register("transaction_set.members_readable")
REFUSAL_RECORDED = register("transaction_set.refusal_recorded")
REGISTRATION_WRITTEN = register("transaction_set.registration_written")
ORPHANS_ABORTED = register("transaction_set.orphans_aborted")


@dataclass(frozen=True, slots=True)
class RegisterAnswer:
    """``verdict``: ``REGISTERED``, ``BATCH_DECIDED``, ``FENCED`` or ``REFUSED`` (a transaction is not open).

    ``renewed_for_ms``: how long the batch's transactions stay open without another call.
    """

    verdict: Verdict
    detail: str
    last_batch_id: int
    renewed_for_ms: int = 0


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """``verdict``: ``COMMITTED``, ``ALREADY_COMMITTED``, ``REPLAY_DIFFERS``, ``CHECKPOINT_BEHIND_SINK``, ``FENCED`` or
    ``REFUSED``; ``set``: the recorded one that the verdict is about, if any."""

    verdict: Verdict
    detail: str
    set: SetRecord | None


@dataclass(frozen=True, slots=True)
class DecisionAnswer:
    decision: SetRecord | RefusedSet | None
    last_batch_id: int


class TransactionSetService(Service):
    """One per controller, beside its ``TransactionService``, which it also serves as ``BindingSets``."""

    def __init__(
        self,
        *,
        transactions: TransactionService,
        store: VersionedStore,
        clock: Clock,
        kept_ms: int = record_kept_ms,
    ) -> None:
        """``kept_ms``: how long the record of a sink is kept that is not used."""
        super().__init__("transaction-sets")
        self._sinks = SinkStore(store)
        self._index = SinkIndex(store, self._sinks, kept_ms)
        self._janitor = RegistrationJanitor(self._sinks)
        self._members = MemberTransactions(transactions, self)
        self._clock = clock
        self._finishing: dict[tuple[str, int], asyncio.Future[None]] = {}
        """Sets that this controller makes readable: done once each is, or is left to others."""
        transactions.attach_sets(self)

    async def on_start(self) -> None:
        await both_ended(self._sinks.start(), self._index.create_tables())
        self.spawn(self._sweep_periodically(), "sweep")

    # ---- register ----------------------------------------------------------------------------------------------------

    async def register(
        self,
        query_id: str,
        destination: str,
        run_id: str,
        batch_id: int,
        members: Sequence[MemberRecord],
        secret: bytes = b"",
    ) -> RegisterAnswer:
        """Announce a task's transactions, or renew them: every call keeps all of the batch's transactions open.

        So does one without members, of a task that has none yet.
        ``AccessDenied`` for who does not show the sink's secret, here and in the calls below.
        """
        check_batch(query_id, destination, run_id, batch_id, members)
        shown = hash_of(secret)
        key = sink_key(query_id, destination)
        for lost in range(1, cas_limits.attempts_max + 1):
            taken = await self._apply_new(
                key, query_id, destination, transaction_set.Register(run_id, batch_id, self._now(), shown)
            )
            if taken is None:
                await self._clock.sleep(cas_limits.pause_s(lost))
                continue
            _check_admitted(taken)
            if taken.verdict is Verdict.TOO_MANY_BATCHES:
                raise Throttled(taken.detail)
            if taken.verdict is not Verdict.REGISTERED:
                return await self._registration_refused(taken, members)
            problem = await self._write_registrations(key, run_id, batch_id, members)
            await failpoint_async(REGISTRATION_WRITTEN, destination_of(key))
            fresh = await self._sinks.read(key)
            if fresh is None:
                continue
            after = transaction_set.step(fresh.record, transaction_set.Register(run_id, batch_id, self._now(), shown))
            _check_admitted(after)
            if after.verdict is not Verdict.REGISTERED:
                if after.verdict is Verdict.BATCH_DECIDED:
                    await self._sinks.remove_registrations(key, batch_id)
                return await self._registration_refused(after, members)
            if after.record != fresh.record:
                # A sweep took the batch for dead in between: it has to be on the list for the registration to count.
                continue
            last = fresh.record.last_batch_id
            if problem:
                return RegisterAnswer(Verdict.REFUSED, problem, last)
            return RegisterAnswer(Verdict.REGISTERED, "", last, undecided_grace_ms)
        raise VersionConflict(f"sink {key}: changed by others {cas_limits.attempts_max} times in a row")

    async def _write_registrations(self, key: str, run_id: str, batch_id: int, members: Sequence[MemberRecord]) -> str:
        """Note the members with the batch, and the batch with the members; what is wrong with one of them."""
        # One shard notes the time of the call in any case: the batch is open for so long after it.
        by_shard: dict[int, list[MemberRecord]] = {} if members else {0: []}
        for member in members:
            by_shard.setdefault(shard_of(member), []).append(member)
        now_ms = self._now()

        async def add(shard: int, some: list[MemberRecord]) -> None:
            await compare_and_set(
                lambda: self._sinks.add_registrations(key, batch_id, shard, some, now_ms),
                cas_limits,
                self._clock,
                subject=f"registrations of sink {key}",
            )

        _, problem = await both_ended(
            all_ended(add(shard, some) for shard, some in by_shard.items()),
            self._members.register(RegistrationRecord(key, batch_id, run_id), members),
        )
        return problem

    async def _registration_refused(self, taken: Step, members: Sequence[MemberRecord]) -> RegisterAnswer:
        """Refuse a registration. Transactions of a decided batch that are not in its set are aborted at once: they can
        never be committed."""
        if taken.verdict is Verdict.BATCH_DECIDED:
            await self._members.abort([Registered(member.stream, member.transaction) for member in members])
        return RegisterAnswer(taken.verdict, taken.detail, taken.record.last_batch_id)

    # ---- commit ------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        query_id: str,
        destination: str,
        run_id: str,
        batch_id: int,
        members: Sequence[MemberRecord],
        events: int,
        size_bytes: int,
        secret: bytes = b"",
        label: str = "",
    ) -> CommitAnswer:
        """Commit a batch. ``COMMITTED`` is answered when that is durable; the members become readable at once after,
        which ``get`` shows as ``FINISHED``. After an error without an answer the same call is to be made again."""
        check_commit(query_id, destination, run_id, batch_id, members, events, size_bytes)
        shown = hash_of(secret)
        key = sink_key(query_id, destination)
        tried: dict[int, SetRecord] = {}
        for lost in range(1, cas_limits.attempts_max + 1):
            found = await self._read_or_new(key, query_id, destination)
            last = found.record.last
            if last is not None and last.sequence in tried:
                return self._committed(key, last)
            await self._release_dead(found.record, tried)
            # A time of its own for each attempt: a set that begins in the past would be refused as pending too long.
            request = transaction_set.Commit(
                run_id, batch_id, tuple(members), events, size_bytes, self._now(), shown, label_of(label)
            )
            taken = transaction_set.step(found.record, request)
            _check_admitted(taken)
            if taken.verdict is Verdict.ORDER_PREVIOUS:
                await self._order(key, _required(taken.set))
                continue
            if taken.verdict is Verdict.BIND and not _required(taken.set).members:
                tried[_required(taken.set).sequence] = _required(taken.set)
                taken = transaction_set.step(taken.record, AllBound(_required(taken.set).sequence, self._now()))
            written = await self._write(key, found, taken.record)
            if written is None:
                await self._clock.sleep(cas_limits.pause_s(lost))
                continue
            if taken.verdict is Verdict.COMMITTED:
                return self._committed(key, _required(taken.set))
            if taken.verdict is not Verdict.BIND:
                return self._answer(key, taken)
            await failpoint_async(PENDING_RECORDED, destination_of(key))
            pending = _required(taken.set)
            tried[pending.sequence] = pending
            decided = await self._bind_and_decide(key, written, pending)
            if decided is not None:
                return decided
        raise VersionConflict(f"sink {key}: changed by others {cas_limits.attempts_max} times in a row")

    async def _bind_and_decide(self, key: str, found: FoundSink, pending: SetRecord) -> CommitAnswer | None:
        """Take a pending set to its end; None when somebody changed the sink's record meanwhile."""
        reference = SetReference(key, pending.sequence)
        problem = await self._members.bind(reference, pending.batch_id, pending.members)
        await failpoint_async(MEMBERS_BOUND, destination_of(key))
        if problem:
            refused = transaction_set.step(found.record, transaction_set.Refuse(pending.sequence, problem, self._now()))
            if await self._write(key, found, refused.record) is None:
                return None
            await failpoint_async(REFUSAL_RECORDED, destination_of(key))
            await self._members.release(reference, pending.members)
            return CommitAnswer(Verdict.REFUSED, problem, pending)
        stream_ids = await self._members.stream_ids(pending.members)
        taken = transaction_set.step(found.record, AllBound(pending.sequence, self._now(), stream_ids))
        if await self._write(key, found, taken.record) is None:
            return None
        await failpoint_async(COMMIT_RECORDED, destination_of(key))
        return self._committed(key, _required(taken.set))

    async def _release_dead(self, record: SinkRecord, tried: dict[int, SetRecord]) -> None:
        """Let go of members of sets that this call bound and somebody else refused."""
        for sequence in [sequence for sequence in tried if not record.holds(sequence)]:
            await self._members.release(transaction_set.reference(record, sequence), tried.pop(sequence).members)

    def _committed(self, key: str, committed: SetRecord) -> CommitAnswer:
        self._start_finishing(key, committed)
        return CommitAnswer(Verdict.COMMITTED, "", committed)

    def _answer(self, key: str, taken: Step) -> CommitAnswer:
        if taken.verdict is Verdict.ALREADY_COMMITTED:
            self._start_finishing(key, _required(taken.set))
        return CommitAnswer(taken.verdict, taken.detail, taken.set)

    # ---- get, list, keep ---------------------------------------------------------------------------------------------

    async def get(
        self,
        query_id: str,
        destination: str,
        batch_id: int,
        secret: bytes = b"",
        *,
        is_operator: bool = False,
        wait_ms: int = 0,
    ) -> DecisionAnswer:
        """The decision about a batch, if there is one, and the last batch of its sink; operators need no secret.

        ``wait_ms``: how long to wait, at most ``readable_wait_max_ms``, for a set that this controller is about to make
        readable; one that another controller works on is answered as it is.
        """
        answer = await self._decision(query_id, destination, batch_id, secret, is_operator=is_operator)
        if wait_ms <= 0 or not isinstance(answer.decision, SetRecord):
            return answer
        finished = self._finishing.get((sink_key(query_id, destination), answer.decision.sequence))
        if finished is None or answer.decision.state is SetRecordState.FINISHED:
            return answer
        await self._wait(finished, min(wait_ms, readable_wait_max_ms) / 1000)
        return await self._decision(query_id, destination, batch_id, secret, is_operator=is_operator)

    async def _decision(
        self, query_id: str, destination: str, batch_id: int, secret: bytes, *, is_operator: bool
    ) -> DecisionAnswer:
        check_sink(query_id, destination)
        shown = hash_of(secret)
        found = await self._sinks.read(sink_key(query_id, destination))
        record = None if found is None else found.record
        if record is not None and not is_operator and is_stranger(record.secret_hash, shown):
            raise AccessDenied(refusal(query_id, destination, shown))
        return DecisionAnswer(
            transaction_set.decision(record, batch_id), -1 if record is None else record.last_batch_id
        )

    async def record_of(self, query_id: str, destination: str) -> SinkRecord | None:
        """The record of a sink; None if nothing is on record."""
        found = await self._sinks.read(sink_key(query_id, destination))
        return None if found is None else found.record

    async def list_sinks(self, token: bytes = b"") -> tuple[list[SinkRecord], bytes]:
        """Some sinks and the token of the next page, empty at the end."""
        page, token = await self._sinks.page(token)
        return [found.record for _, found in page], token

    async def forget(self, query_id: str, destination: str, *, secret_only: bool = False) -> None:
        """Let a sink start over, or only take another secret from its next run; an operator decides that.

        ``NotFound``; ``InvalidArgument`` while the sink has work to do: what is decided is always finished.
        """
        check_sink(query_id, destination)
        key = sink_key(query_id, destination)

        async def apply() -> None:
            found = await self._sinks.read(key)
            if found is None:
                raise NotFound(f"no sink of query {query_id} into {destination} is on record")
            if secret_only:
                record = dataclasses.replace(found.record, secret_hash="")
            elif not found.record.is_settled:
                raise InvalidArgument(
                    f"the sink of query {query_id} into {destination} has transactions that are not finished: stop the "
                    f"query, and try again after {(undecided_grace_ms + pending_max_ms) // 60_000} minutes"
                )
            else:
                record = transaction_set.forgotten(found.record, self._now())
            await self._sinks.write(key, await self._index.noted(key, record, self._now()), found.version)

        await compare_and_set(apply, cas_limits, self._clock, subject=f"sink {key}")
        self.log.warning("sink is forgotten, as an operator decided", sink=key, secret_only=secret_only)

    async def lost_members(self, stream: str = "") -> list[LostMember]:
        """The members of all sinks that keep a committed set out of the commit orders of its streams, or of one."""
        lost: list[LostMember] = []
        async for found in self._index.unfinished():
            last = None if found.sink is None else found.sink.record.last
            if last is not None and last.state is SetRecordState.COMMITTED:
                reference = SetReference(found.key, last.sequence)
                members = [member for member in last.unordered if stream in ("", member.stream)]
                lost += await self._members.lost(reference, members, last.stream_ids)
        return lost

    async def holds(self, reference: SetReference) -> bool:
        found = await self._sinks.read(reference.sink)
        return found is not None and found.record.holds(reference.sequence)

    async def open_until_ms(self, registration: RegistrationRecord) -> int:
        found = await self._sinks.read(registration.sink)
        if found is None or registration.batch_id <= found.record.last_batch_id:
            return 0
        if not found.record.known_runs.is_live(registration.run_id):
            return 0
        return await self._silent_since_ms(registration.sink, registration.batch_id) + undecided_grace_ms

    async def _silent_since_ms(self, key: str, batch_id: int) -> int:
        shards = await self._sinks.registrations(key, batch_id)
        return max((shard.touched_ms for shard in shards), default=0)

    # ---- finishing ---------------------------------------------------------------------------------------------------

    def _start_finishing(self, key: str, committed: SetRecord) -> None:
        """At once; what does not fit is finished by a later sweep, or before the sink's next commit."""
        started = (key, committed.sequence)
        if started not in self._finishing and len(self._finishing) < finishing_max and self.is_running:
            self._finishing[started] = finished = asyncio.get_running_loop().create_future()
            self.spawn(self._finish(key, committed, finished), f"finish {key}")

    async def _finish(self, key: str, committed: SetRecord, finished: asyncio.Future[None]) -> None:
        async def make_readable() -> None:
            try:
                await self._make_readable(key, committed)
            finally:
                finished.set_result(None)

        try:
            await both_ended(make_readable(), self._clear_batches(key))
        except Exception as error:  # also of a bug: the sweep comes back to it
            self.log.warning("set is finished later", sink=key, batch=committed.batch_id, error=repr(error))
        finally:
            del self._finishing[key, committed.sequence]

    async def _make_readable(self, key: str, committed: SetRecord) -> None:
        """Have the members merged, here or on another controller, and record that they are; within a limit."""
        if committed.state is SetRecordState.FINISHED:
            return
        with self._members.expect(committed.members) as expectation:
            await self._order(key, committed)
            for look in range(finish_looks_max):
                if not expectation.all_came.done() and await self._members.unfinished(committed.members):
                    await self._wait(expectation.all_came, min(finish_look_first_s * 2**look, finish_look_last_s))
                    continue
                await failpoint_async(MEMBERS_READABLE, destination_of(key))
                await self._apply(
                    key, transaction_set.Advance(committed.sequence, SetRecordState.FINISHED, self._now())
                )
                return
        self.log.warning("set is not finished yet", sink=key, batch=committed.batch_id)

    async def _wait(self, readable: asyncio.Future[None], delay_s: float) -> None:
        """Wait until this controller has made something readable, or it is time to look again."""
        alarm = self.spawn(self._clock.sleep(delay_s), "next look")
        try:
            await asyncio.wait({alarm, readable}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    async def _order(self, key: str, committed: SetRecord) -> None:
        """Put a committed set's members in order and have them merged; raises what keeps one of them from it.

        What was done in some streams is noted before that is raised: by the time that the others can go on, those may
        have been deleted, or what became of their transactions forgotten.
        """
        if committed.state is SetRecordState.COMMITTED:
            reference = SetReference(key, committed.sequence)
            done, problem = await self._members.order(reference, committed.unordered, committed.stream_ids)
            if problem is not None:
                if done:
                    await self._members.schedule([item for item in committed.members if item.stream in done])
                    await self._apply(key, StreamsOrdered(committed.sequence, done, self._now()))
                raise problem
            await failpoint_async(MEMBERS_ORDERED, destination_of(key))
            await both_ended(
                self._members.schedule(committed.members),
                self._apply(key, transaction_set.Advance(committed.sequence, SetRecordState.ORDERED, self._now())),
            )
            await failpoint_async(ORDER_RECORDED, destination_of(key))
            return
        await self._members.schedule(committed.members)

    async def _clear_batches(self, key: str) -> None:
        """Abort what was registered for batches that are decided and is in no set."""
        found = await self._sinks.read(key)
        if found is None or not found.record.decided_batches:
            return
        last = found.record.last
        kept = {(member.stream, member.transaction) for member in (last.members if last else ())}
        await self._clear(key, found.record.decided_batches, kept, is_decided=True)

    async def _clear(self, key: str, batches: tuple[int, ...], kept: set[tuple[str, str]], *, is_decided: bool) -> None:
        for batch_id in batches:
            shards = await self._sinks.registrations(key, batch_id)
            registered = [item for shard in shards for item in shard.transactions]
            await self._members.abort([item for item in registered if (item.stream, item.transaction) not in kept])
        await failpoint_async(ORPHANS_ABORTED, destination_of(key))
        if is_decided:
            # Before the batches leave the record, which is all that leads to them. Who registers for a decided batch
            # from now on takes it back, so nothing that matters is lost; of undecided ones a task may come just now.
            await all_ended(self._sinks.remove_registrations(key, batch_id) for batch_id in batches)
        await self._apply(key, BatchesCleared(batches, self._now()))
        await all_ended(self._sinks.remove_registrations(key, batch_id) for batch_id in batches)

    # ---- sweep -------------------------------------------------------------------------------------------------------

    async def _sweep_periodically(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("sweep failed", error=repr(error), retry_s=sweep_period_s)
            await self._clock.sleep(sweep_period_s)

    async def sweep(self) -> None:
        """Refuse what is pending for too long, go on with what is committed and not finished, forget old sinks.

        What it costs goes with the sinks that have work to do, or had it a minute ago.
        """
        await self._index.complete(self._now())
        looked_at: list[IndexedSink] = []
        async for found in self._index.unfinished():
            looked_at.append(found)
            if len(looked_at) == sweeps_at_once_max:
                await all_ended(map(self._try_sweep, looked_at))
                looked_at = []
        await all_ended(map(self._try_sweep, looked_at))
        if self._clock.is_right():
            await self._index.forget_expired(self._now())
            await self._janitor.look(self._now())

    async def _try_sweep(self, found: IndexedSink) -> None:
        try:
            async with asyncio.timeout(sweep_time_max_s):
                if found.sink is not None:
                    await self._sweep_sink(found.key, found.sink)
                await self._index.remove_if_settled(found, self._now())
        except Exception as error:
            # Whatever is wrong with one sink, or with the streams of its transactions, the others come next.
            self.log.warning("sweep of a sink failed", sink=found.key, error=repr(error))

    async def _sweep_sink(self, key: str, found: FoundSink) -> None:
        record, now_ms = found.record, self._now()
        pending, last = record.pending, record.last
        if pending is not None:
            if now_ms - pending.started_ms > pending_max_ms and self._clock.is_right():
                detail = f"pending for more than {pending_max_ms} ms"
                taken = transaction_set.step(record, transaction_set.Refuse(pending.sequence, detail, now_ms))
                if await self._write(key, found, taken.record) is not None:
                    await self._members.release(SetReference(key, pending.sequence), pending.members)
            return
        if last is not None and (last.state is not SetRecordState.FINISHED or record.decided_batches):
            self._start_finishing(key, last)
            return
        if self._clock.is_right():
            await self._clear_silent(key, record, now_ms)

    async def _clear_silent(self, key: str, record: SinkRecord, now_ms: int) -> None:
        """Take undecided batches off the list whose tasks went silent long enough ago for their transactions to end."""
        for batch_id in record.open_batches:
            silent_ms = now_ms - max(await self._silent_since_ms(key, batch_id), record.touched_ms)
            if silent_ms > undecided_grace_ms + pending_max_ms:
                await self._clear(key, (batch_id,), set(), is_decided=False)

    # ---- the sink's record -------------------------------------------------------------------------------------------

    async def _read_or_new(self, key: str, query_id: str, destination: str) -> FoundSink:
        found = await self._sinks.read(key)
        return FoundSink(SinkRecord(query_id, destination), ABSENT) if found is None else found

    async def _write(self, key: str, found: FoundSink, record: SinkRecord) -> FoundSink | None:
        """Replace what was found by the record as it is returned; None if somebody changed it or nobody can tell."""
        if record == found.record:
            return found
        try:
            record = await self._index.noted(key, record, self._now())
            return FoundSink(record, await self._sinks.write(key, record, found.version))
        except PravegaError as error:
            if is_lost_race(error):
                return None
            raise

    async def _apply_new(self, key: str, query_id: str, destination: str, event: Event) -> Step | None:
        """Try a step once, on a new record if the sink has none yet; None if it has to be repeated."""
        found = await self._read_or_new(key, query_id, destination)
        taken = transaction_set.step(found.record, event)
        return taken if await self._write(key, found, taken.record) is not None else None

    async def _apply(self, key: str, event: Event) -> None:
        """A step on a record that exists, until it is in; nothing if the record is gone."""

        async def apply() -> None:
            found = await self._sinks.read(key)
            if found is None:
                return
            taken = transaction_set.step(found.record, event)
            if taken.record != found.record:
                record = await self._index.noted(key, taken.record, self._now())
                await self._sinks.write(key, record, found.version)

        await compare_and_set(apply, cas_limits, self._clock, subject=f"sink {key}")

    def _now(self) -> int:
        return self._clock.wall_ms()


def _check_admitted(taken: Step) -> None:
    if taken.verdict is Verdict.STRANGER:
        raise AccessDenied(taken.detail)


def _required(record: SetRecord | None) -> SetRecord:
    """The set that a verdict about a set always comes with."""
    if record is None:
        raise VersionConflict("a verdict about a set came without one")
    return record
