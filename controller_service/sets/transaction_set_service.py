"""Commits the transactions of a batch, also of several streams, as one set.

The order of durable steps is the proof: the set is pending on its sink's record; every member is bound to it; one
compare-and-set makes it committed. Before that step the set can only be refused, after it only be finished, by
whichever instance gets to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.sets import transaction_set
from controller_service.sets.members import LostMember, MemberTransactions
from controller_service.sets.registration_janitor import RegistrationJanitor
from controller_service.sets.set_finisher import SetFinisher
from controller_service.sets.set_sweep import SetSweep, pending_max_ms, undecided_grace_ms
from controller_service.sets.sink_index import SinkIndex
from controller_service.sets.sink_secrets import hash_of, is_stranger, refusal
from controller_service.sets.sink_steps import SinkSteps, cas_limits
from controller_service.sets.sink_store import FoundSink, Registered, SinkStore, shard_of
from controller_service.sets.transaction_set import (
    AllBound,
    MemberRecord,
    RefusedSet,
    SetRecord,
    SetRecordState,
    SinkRecord,
    Step,
    Verdict,
    destination_of,
    sink_key,
)
from controller_service.sets.validation import check_batch, check_commit, check_sink
from controller_service.store.versioned_store import VersionedStore
from controller_service.transactions.lifecycle import TransactionService
from controller_service.transactions.records import RegistrationRecord, SetReference
from pravega_common.errors import AccessDenied, InvalidArgument, NotFound, Throttled, VersionConflict
from pravega_common.model.transaction_sets import label_of
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint_async, register
from pravega_common.runtime.joined import all_ended, both_ended
from pravega_common.services.base import Service
from pravega_common.services.retrying import compare_and_set

record_kept_ms: Final = 90 * 24 * 3600 * 1000
"""How long a sink's record outlives its last use."""
sweep_period_s: Final = 15.0
readable_wait_max_ms: Final = 1_000
"""How long a question about a set may wait until it is readable."""

PENDING_RECORDED = register("transaction_set.pending_recorded")
MEMBERS_BOUND = register("transaction_set.members_bound")
COMMIT_RECORDED = register("transaction_set.commit_recorded")
REFUSAL_RECORDED = register("transaction_set.refusal_recorded")
REGISTRATION_WRITTEN = register("transaction_set.registration_written")


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
        self._steps = SinkSteps(self._sinks, self._index, clock)
        self._janitor = RegistrationJanitor(self._sinks)
        self._members = MemberTransactions(transactions, self)
        self._finisher = SetFinisher(self, self._members, self._sinks, self._steps, clock)
        self._sweep = SetSweep(self, self._index, self._janitor, self._members, self._steps, self._finisher, clock)
        self._clock = clock
        transactions.attach_sets(self)

    async def on_start(self) -> None:
        await both_ended(self._sinks.start(), self._index.create_tables())
        self.spawn(self._sweep_periodically(), "sweep")

    async def _sweep_periodically(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("sweep failed", error=repr(error), retry_s=sweep_period_s)
            await self._clock.sleep(sweep_period_s)

    async def sweep(self) -> None:
        """Go on with what calls left behind, once."""
        await self._sweep.once()

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
            taken = await self._steps.apply_new(
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
            found = await self._steps.read_or_new(key, query_id, destination)
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
                await self._finisher.order(key, _required(taken.set))
                continue
            if taken.verdict is Verdict.BIND and not _required(taken.set).members:
                tried[_required(taken.set).sequence] = _required(taken.set)
                taken = transaction_set.step(taken.record, AllBound(_required(taken.set).sequence, self._now()))
            written = await self._steps.write(key, found, taken.record)
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
            if await self._steps.write(key, found, refused.record) is None:
                return None
            await failpoint_async(REFUSAL_RECORDED, destination_of(key))
            await self._members.release(reference, pending.members)
            return CommitAnswer(Verdict.REFUSED, problem, pending)
        stream_ids = await self._members.stream_ids(pending.members)
        taken = transaction_set.step(found.record, AllBound(pending.sequence, self._now(), stream_ids))
        if await self._steps.write(key, found, taken.record) is None:
            return None
        await failpoint_async(COMMIT_RECORDED, destination_of(key))
        return self._committed(key, _required(taken.set))

    async def _release_dead(self, record: SinkRecord, tried: dict[int, SetRecord]) -> None:
        """Let go of members of sets that this call bound and somebody else refused."""
        for sequence in [sequence for sequence in tried if not record.holds(sequence)]:
            await self._members.release(transaction_set.reference(record, sequence), tried.pop(sequence).members)

    def _committed(self, key: str, committed: SetRecord) -> CommitAnswer:
        self._finisher.start(key, committed)
        return CommitAnswer(Verdict.COMMITTED, "", committed)

    def _answer(self, key: str, taken: Step) -> CommitAnswer:
        if taken.verdict is Verdict.ALREADY_COMMITTED:
            self._finisher.start(key, _required(taken.set))
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
        key, time_s = sink_key(query_id, destination), min(wait_ms, readable_wait_max_ms) / 1000
        if answer.decision.state is SetRecordState.FINISHED or not await self._finisher.wait(
            key, answer.decision, time_s
        ):
            return answer
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
            await self._steps.replace(key, found, record)

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
        return await self._steps.silent_since_ms(registration.sink, registration.batch_id) + undecided_grace_ms

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
