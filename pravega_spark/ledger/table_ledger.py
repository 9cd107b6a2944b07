"""Decides transaction sets on a plain Pravega, by a record of each sink in a table segment.

Has the same three calls as the controller's extension (``TransactionSetClient``), over transactions of single streams
and one table segment per scope. The rules are in ``record.py``; here are the calls, and what to do when one is lost.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pravega_common.errors import (
    BadKeyVersion,
    KeyNotFound,
    NotFound,
    PravegaError,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.invariants import check
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    Registration,
    SetDecision,
    SetMember,
    SetState,
    Sink,
    SinkStatus,
    TransactionSet,
)
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.ledger.batch import BatchCommit, BatchRegistration, UnresolvedPolicy
from pravega_spark.ledger.lease_extender import LeaseExtender
from pravega_spark.ledger.record import (
    BatchUnresolved,
    CommitStep,
    LedgerRecord,
    MemberStatus,
    RecoveryStep,
    commit_step,
    from_bytes,
    key_of,
    new_record,
    recovery_step,
    table_segment,
    to_bytes,
    unresolved_text,
)
from pravega_streams.errors import TransactionFailed
from pravega_streams.table.table_client import NOT_EXISTS, TableItem

_log = logging.getLogger(__name__)

BEFORE_RECORD: Final = register("spark.plain.before_record")
AFTER_RECORD: Final = register("spark.plain.after_record")
AFTER_ONE_COMMIT: Final = register("spark.plain.after_one_commit")
AFTER_COMMITS: Final = register("spark.plain.after_commits")
AFTER_MARK: Final = register("spark.plain.after_mark")

lease_ms: Final = 600_000
"""The largest that a controller accepts by default (docs/controller-api.md 4.2)."""
lease_ms_fallback: Final = 30_000
"""For a controller that is configured to accept less."""
commit_window_share: Final = 4
"""Members are committed only within this part of the lease after they were all seen open; then they are asked again.
So a driver that slept through the leases commits nothing on what it saw before."""
parallel_calls_max: Final = 8
attempts_max: Final = 50
"""Attempts to change a record that others change too: each that fails means that another change was made."""
retry_delay_s: Final = 0.05


class TransactionCalls(Protocol):
    """The calls to the controller; ``ControllerClient`` has them."""

    def ping_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID, lease_ms: int) -> PingStatus: ...

    def transaction_state(self, scope: str, stream: str, transaction_id: uuid.UUID) -> TransactionState: ...

    def commit_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None: ...

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None: ...


class RecordTable(Protocol):
    """The calls to a table segment; ``BlockingTable`` has them."""

    def create(self) -> bool: ...

    def get(self, key: bytes) -> TableItem: ...

    def put(self, key: bytes, value: bytes, version: int) -> int: ...

    def items(self) -> Iterator[TableItem]: ...


@dataclass(frozen=True, slots=True)
class _Versioned:
    record: LedgerRecord
    version: int


@dataclass(frozen=True, slots=True)
class _States:
    """The states of members, and when the first of them was asked for (monotonic seconds)."""

    of: dict[uuid.UUID, MemberStatus]
    asked_s: float
    lease_ms: int

    @property
    def commit_until_s(self) -> float:
        return self.asked_s + self.lease_ms / 1000 / commit_window_share


class TableLedger:
    """A ledger of transaction sets. Safe to use from several threads.

    Errors of all calls: ``Unavailable``, ``UnknownOutcome``: call again.
    """

    def __init__(
        self,
        transactions: TransactionCalls,
        open_table: Callable[[str], RecordTable],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        extends_leases: bool = True,
        parallel_calls: int = parallel_calls_max,
    ) -> None:
        self._transactions = transactions
        self._open_table = open_table
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._parallel_calls = parallel_calls
        self._lock = threading.Lock()
        self._readable: set[uuid.UUID] = set()
        self._extender = LeaseExtender(self._is_open, lease_ms / 1000) if extends_leases else None

    # The three calls

    def register(self, registration: BatchRegistration) -> Registration:
        """Enter the run, settle what an earlier run left, and give the members the largest lease."""
        run_id, members = registration.identity.run_id, registration.members
        found = self._entered(registration.identity.sink, run_id)
        if found.record.is_displaced(run_id):
            return _refusal(RegisterStatus.FENCED, f"run {found.record.runs[-1]} took its place", found.record)
        if found.record.is_pending and found.record.entry.run_id != run_id:
            # Its leases run: it is settled now, not when this batch's tasks are done.
            found = self._settled(found) or found
        record = found.record
        if registration.identity.batch_id <= record.last_batch_id:
            return _refusal(RegisterStatus.BATCH_DECIDED, "", record)
        states = self._states(members)
        for identifier, state in states.of.items():
            if state is not MemberStatus.OPEN:
                detail = f"transaction {identifier} is {state.name.lower()}"
                return _refusal(RegisterStatus.TRANSACTION_NOT_OPEN, detail, record)
        if self._extender is not None:
            self._extender.add(members)
        return Registration(RegisterStatus.REGISTERED, "", record.last_batch_id, states.lease_ms)

    def commit(self, commit: BatchCommit) -> SetDecision:
        """Decide a batch. Raises ``BatchUnresolved`` when an earlier attempt's fate is not known and ``on_unresolved``
        is ``fail``; ``skip`` leaves that attempt as it is and goes on, ``replay`` writes this one in its place.
        """
        sink, wanted = commit.identity.sink, commit.as_set(SetState.PENDING)
        is_written = False
        for _ in range(attempts_max):
            found = self._read(sink)
            step = commit_step(found.record, wanted)
            decision: SetDecision | None = None
            if step is CommitStep.ROLL_FORWARD:
                if self._settled(found) is None:
                    decision = self._unresolved(found, wanted, commit.on_unresolved)
            elif step is CommitStep.PUT:
                decision = self._put_pending(found, wanted)
                is_written = True
            else:
                decision = _decision_of(step, found.record, wanted, is_written=is_written)
            if decision is not None:
                return decision
        raise Unavailable(f"the record of {sink} changed under each of {attempts_max} attempts; call again")

    def get(self, sink: Sink, batch_id: int) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id (-1 if none)."""
        record = self._read(sink).record
        recorded = record.set_of(batch_id)
        if recorded.state is SetState.COMMITTED and all(self._is_readable(item) for item in recorded.members):
            recorded = replace(recorded, state=SetState.FINISHED)
        return recorded, record.last_batch_id

    def list_sinks(self, scope: str) -> list[SinkStatus]:
        """The sinks that are on record in a scope."""
        table = self._open_table(table_segment(Sink("", scope)))
        try:
            records = [from_bytes(item.value) for item in table.items()]
        except SegmentNotFound:
            return []
        return [
            SinkStatus(item.sink, item.last_batch_id, item.runs[-1] if item.runs else "", item.touched_ms, item.entry)
            for item in records
        ]

    def close(self) -> None:
        if self._extender is not None:
            self._extender.stop()

    # The record

    def _read(self, sink: Sink) -> _Versioned:
        table, key = self._open_table(table_segment(sink)), key_of(sink)
        try:
            item = table.get(key)
        except SegmentNotFound:
            table.create()
            item = table.get(key)
        if item.version == NOT_EXISTS:
            return _Versioned(new_record(sink), NOT_EXISTS)
        return _Versioned(from_bytes(item.value), item.version)

    def _write(self, found: _Versioned, record: LedgerRecord) -> _Versioned | None:
        """Change the record; ``None`` if it has changed since it was found, or may have been changed by this call."""
        table = self._open_table(table_segment(record.sink))
        record = replace(record, touched_ms=self._now_ms())
        data = to_bytes(record)
        try:
            return _Versioned(record, table.put(key_of(record.sink), data, found.version))
        except (BadKeyVersion, KeyNotFound):
            return None
        except UnknownOutcome as error:
            _log.info("the record of %s may have been written, reading it again: %s", record.sink, error)
            self._sleep(retry_delay_s)
            return None

    def _entered(self, sink: Sink, run_id: str) -> _Versioned:
        """The record with this run in it, also if the run is displaced already."""
        for _ in range(attempts_max):
            found = self._read(sink)
            record = found.record.with_run(run_id)
            if record is found.record:
                return found
            made = self._write(found, record)
            if made is not None:
                return made
        raise Unavailable(f"the record of {sink} changed under each of {attempts_max} attempts; call again")

    def _put_pending(self, found: _Versioned, wanted: TransactionSet) -> SetDecision | None:
        """Make ``wanted`` the pending set and settle it; a refusal unless all its members are open.

        ``None`` to read the record again, also after a lost race.
        """
        states = self._states(wanted.members)
        for identifier, state in states.of.items():
            if state is not MemberStatus.OPEN:
                detail = f"transaction {identifier} is {state.name.lower()}"
                return _decision(CommitStatus.REFUSED, detail, found.record, wanted)
        record = found.record.with_pending(wanted)
        failpoint(BEFORE_RECORD, record.sink.destination)
        if not wanted.members:
            self._write(found, record.with_outcome(SetState.COMMITTED))
            return None
        made = self._write(found, record)
        failpoint(AFTER_RECORD, record.sink.destination)
        if made is not None:
            self._settled(made, states)
        return None

    # Rolling a pending set forward

    def _settled(self, found: _Versioned, states: _States | None = None) -> _Versioned | None:
        """Bring the pending set to its end; ``None`` if that cannot be decided. Idempotent: several may do it at once.

        A record that another run changed meanwhile is returned as it is now.
        """
        entry = found.record.entry
        for _ in range(attempts_max):
            if states is None:
                states = self._states(entry.members)
            match recovery_step(states.of):
                case RecoveryStep.COMMIT:
                    states = self._commit_open(entry.members, states)
                case RecoveryStep.ABORT:
                    states = self._abort_open(entry.members, states)
                case RecoveryStep.COMMITTED:
                    failpoint(AFTER_COMMITS, found.record.sink.destination)
                    marked = self._mark(found, SetState.COMMITTED)
                    failpoint(AFTER_MARK, found.record.sink.destination)
                    return marked
                case RecoveryStep.ABORTED:
                    return self._mark(found, SetState.REFUSED)
                case RecoveryStep.UNRESOLVED:
                    return None
        raise Unavailable(f"batch {entry.batch_id} of {found.record.sink} could not be settled; call again")

    def _mark(self, found: _Versioned, state: SetState) -> _Versioned:
        made = self._write(found, found.record.with_outcome(state))
        return self._read(found.record.sink) if made is None else made

    def _commit_open(self, members: Sequence[SetMember], states: _States) -> _States | None:
        """Commit the open members in their order; ``None`` to ask for all states again."""
        of = dict(states.of)
        for member in members:
            if of[member.transaction_id] is not MemberStatus.OPEN:
                continue
            if self._monotonic_s() > states.commit_until_s:
                return None
            try:
                self._transactions.commit_transaction(member.scope, member.stream, member.transaction_id)
            except TransactionFailed:
                return None
            of[member.transaction_id] = MemberStatus.COMMITTED
            failpoint(AFTER_ONE_COMMIT, member.scope)
        return replace(states, of=of)

    def _abort_open(self, members: Sequence[SetMember], states: _States) -> _States | None:
        """Abort the open members; ``None`` to ask for all states again."""
        of = dict(states.of)
        for member in members:
            if of[member.transaction_id] is not MemberStatus.OPEN:
                continue
            try:
                self._transactions.abort_transaction(member.scope, member.stream, member.transaction_id)
            except TransactionFailed:
                return None
            of[member.transaction_id] = MemberStatus.ABORTED
        return replace(states, of=of)

    def _unresolved(self, found: _Versioned, wanted: TransactionSet, policy: UnresolvedPolicy) -> SetDecision | None:
        """Apply ``on_unresolved`` to a pending set that cannot be decided; ``None`` to look at the record again."""
        record, entry = found.record, found.record.entry
        states = self._states(entry.members)
        if recovery_step(states.of) is not RecoveryStep.UNRESOLVED:
            return None
        text = unresolved_text(record.sink, entry, states.of)
        replays = policy == "replay" and entry.batch_id == wanted.batch_id
        if policy == "fail":
            recorded = {member.transaction_id for member in entry.members}
            self._abort_quietly([item for item in wanted.members if item.transaction_id not in recorded])
            raise BatchUnresolved(
                f"{text}; look into the stream, then set on_unresolved_batch=skip to take that batch as written, or "
                "on_unresolved_batch=replay to write it again"
            )
        if not replays:
            _log.warning("%s; taken as written (on_unresolved_batch=%s)", text, policy)
            self._commit_open(entry.members, states)
            marked = self._mark(found, SetState.COMMITTED).record
            if entry.batch_id != wanted.batch_id or marked.last_batch_id != entry.batch_id:
                return None
            return _decision(CommitStatus.ALREADY_COMMITTED, "", marked, wanted)
        _log.warning("%s; written again (on_unresolved_batch=replay)", text)
        self._abort_open(entry.members, states)
        self._mark(found, SetState.REFUSED)
        return None

    # Transactions

    def _states(self, members: Sequence[SetMember]) -> _States:
        """Ask for the states of members, and give the open ones the largest lease that is accepted."""
        asked_s = self._monotonic_s()
        calls = min(len(members), self._parallel_calls)
        if calls > 1:
            with ThreadPoolExecutor(calls, "pravega-pings") as pool:
                found = list(pool.map(self._state, members))
        else:
            found = [self._state(member) for member in members]
        of = {member.transaction_id: state for member, state in zip(members, found, strict=True)}
        return _States(of, asked_s, self._lease_ms)

    def _state(self, member: SetMember) -> MemberStatus:
        try:
            status = self._ping(member)
        except NotFound:
            return MemberStatus.UNKNOWN
        match status:
            case PingStatus.OK:
                return MemberStatus.OPEN
            case PingStatus.COMMITTED:
                return MemberStatus.COMMITTED
            case PingStatus.ABORTED:
                return MemberStatus.ABORTED
            case PingStatus.UNKNOWN:
                return MemberStatus.UNKNOWN
            case _:  # It lives too long already, or its timer is not at hand: the lease stays, the state is asked.
                return self._asked_state(member)

    def _ping(self, member: SetMember) -> PingStatus:
        name = (member.scope, member.stream, member.transaction_id)
        status = self._transactions.ping_transaction(*name, self._lease_ms)
        if status is PingStatus.LEASE_TOO_LARGE and self._lease_ms > lease_ms_fallback:
            self._lease_ms = lease_ms_fallback
            status = self._transactions.ping_transaction(*name, self._lease_ms)
        return status

    def _asked_state(self, member: SetMember) -> MemberStatus:
        state = self._transactions.transaction_state(member.scope, member.stream, member.transaction_id)
        if state is TransactionState.OPEN:
            return MemberStatus.OPEN
        if state in (TransactionState.COMMITTING, TransactionState.COMMITTED):
            return MemberStatus.COMMITTED
        if state in (TransactionState.ABORTING, TransactionState.ABORTED):
            return MemberStatus.ABORTED
        return MemberStatus.UNKNOWN

    def _is_open(self, member: SetMember) -> bool:
        return self._state(member) is MemberStatus.OPEN

    def _is_readable(self, member: SetMember) -> bool:
        """True unless a member of a committed set is still being merged.

        A plain controller says so, or forgot the transaction long after it was merged. The members that a skipped set
        lacks (``on_unresolved_batch``) will never be there and are not waited for.
        """
        if member.transaction_id not in self._readable:
            state = self._transactions.transaction_state(member.scope, member.stream, member.transaction_id)
            if state is TransactionState.COMMITTING:
                return False
            with self._lock:
                self._readable.add(member.transaction_id)
        return True

    def _abort_quietly(self, members: Sequence[SetMember]) -> None:
        for member in members:
            try:
                self._transactions.abort_transaction(member.scope, member.stream, member.transaction_id)
            except PravegaError as error:
                _log.info("transaction %s was not aborted, its lease will end it: %s", member.transaction_id, error)


def _refusal(status: RegisterStatus, detail: str, record: LedgerRecord) -> Registration:
    return Registration(status, detail, record.last_batch_id, 0)


def _decision_of(step: CommitStep, record: LedgerRecord, wanted: TransactionSet, *, is_written: bool) -> SetDecision:
    """The answer of a record that leaves nothing to do. ``is_written``: this commit put the set on record itself."""
    match step:
        case CommitStep.FENCED:
            return _decision(CommitStatus.FENCED, f"run {record.runs[-1]} took its place", record, wanted)
        case CommitStep.BEHIND:
            detail = f"the sink is at batch {record.last_batch_id}"
            return _decision(CommitStatus.CHECKPOINT_BEHIND_SINK, detail, record, wanted)
        case CommitStep.DIFFERS:
            return _decision(CommitStatus.REPLAY_DIFFERS, "", record, wanted)
    check(step is CommitStep.COMMITTED_ALREADY, "a step that is no answer", step=step.name)
    return _decision(CommitStatus.COMMITTED if is_written else CommitStatus.ALREADY_COMMITTED, "", record, wanted)


def _decision(status: CommitStatus, detail: str, record: LedgerRecord, wanted: TransactionSet) -> SetDecision:
    return SetDecision(status, detail, record.set_of(wanted.batch_id))
