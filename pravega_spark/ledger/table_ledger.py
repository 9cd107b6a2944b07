"""Decides transaction sets on a plain Pravega, by a record of each sink in a table segment.

Has the same three calls as the controller's extension (``TransactionSetClient``), over transactions of single streams
and one table segment per scope. The rules are in ``record.py``, the calls in ``sink_records.py`` and
``batch_members.py``; here is what is done in which order, and again when a call was lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pravega_common.errors import Unavailable
from pravega_common.invariants import check
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    Registration,
    SetDecision,
    SetState,
    Sink,
    SinkStatus,
    TransactionSet,
)
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.system_time import system_time_ms
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration, UnresolvedPolicy
from pravega_spark.ledger.batch_members import (
    BatchMembers,
    TransactionCalls,
    TransactionStates,
    lease_ms,
    parallel_calls_max,
)
from pravega_spark.ledger.lease_extender import LeaseExtender
from pravega_spark.ledger.record import (
    BatchUnresolved,
    CommitStep,
    LedgerRecord,
    MemberStatus,
    RecoveryStep,
    commit_step,
    recovery_step,
    unresolved_text,
)
from pravega_spark.ledger.record_table import RecordTable
from pravega_spark.ledger.sink_records import SinkRecords, VersionedRecord

_log = logging.getLogger(__name__)

BEFORE_RECORD: Final = register("spark.plain.before_record")
AFTER_RECORD: Final = register("spark.plain.after_record")
AFTER_COMMITS: Final = register("spark.plain.after_commits")
AFTER_MARK: Final = register("spark.plain.after_mark")

attempts_max: Final = 50
"""Attempts to change a record that others change too: each that fails means that another change was made."""


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
        now_ms: Callable[[], int] = system_time_ms,
        extends_leases: bool = True,
        parallel_calls: int = parallel_calls_max,
    ) -> None:
        self._records = SinkRecords(open_table, sleep, now_ms)
        self._members = BatchMembers(transactions, monotonic_s, parallel_calls)
        self._extender = LeaseExtender(self._members.is_open, lease_ms / 1000) if extends_leases else None

    # The three calls

    def register(self, registration: BatchRegistration) -> Registration:
        """Note the run as seen, settle what another one left, and give the members the largest lease."""
        identity, members = registration.identity, registration.members
        record = self._seen(identity)
        if record.is_displaced(identity.run_id):
            return _refusal(RegisterStatus.FENCED, f"run {record.runs.present} took its place", record)
        if identity.batch_id <= record.last_batch_id:
            return _refusal(RegisterStatus.BATCH_DECIDED, "", record)
        states = self._members.states(members)
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
            found = self._records.read(sink)
            step = commit_step(found.record, wanted)
            decision: SetDecision | None = None
            if step is CommitStep.ROLL_FORWARD:
                if self._settled(found) is None:
                    decision = self._unresolved(found, wanted, commit.on_unresolved)
            elif step is CommitStep.PUT:
                decision = self._put_pending(replace(found, record=found.record.called(sink.label)), wanted)
                is_written = True
            else:
                decision = _decision_of(step, found.record, wanted, is_written=is_written)
            if decision is not None:
                return decision
        raise Unavailable(f"the record of {sink} changed under each of {attempts_max} attempts; call again")

    def get(self, sink: Sink, batch_id: int) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id (-1 if none)."""
        record = self._records.read(sink).record
        recorded = record.set_of(batch_id)
        if recorded.state is SetState.COMMITTED and self._members.are_readable(recorded.members):
            recorded = replace(recorded, state=SetState.FINISHED)
        return recorded, record.last_batch_id

    def list_sinks(self, scope: str) -> list[SinkStatus]:
        """The sinks that are on record in a scope."""
        return [
            SinkStatus(item.sink, item.last_batch_id, item.runs.present, item.touched_ms, item.entry)
            for item in self._records.of_scope(scope)
        ]

    def close(self) -> None:
        if self._extender is not None:
            self._extender.stop()

    def _seen(self, identity: BatchIdentity) -> LedgerRecord:
        """The record with this run in it, unless the batch is decided. What another run left is settled."""
        for _ in range(attempts_max):
            found = self._records.read(identity.sink)
            if found.record.is_displaced(identity.run_id):
                return found.record
            if found.record.is_pending and found.record.entry.run_id != identity.run_id:
                # Its leases run: it is settled now, not when this batch's tasks are done.
                found = self._settled(found) or found
            record = found.record.seeing(identity.run_id)
            if record is found.record or identity.batch_id <= record.last_batch_id:
                return found.record
            made = self._records.write(found, record)
            if made is not None:
                return made.record
        raise Unavailable(f"the record of {identity.sink} changed under each of {attempts_max} attempts; call again")

    def _put_pending(self, found: VersionedRecord, wanted: TransactionSet) -> SetDecision | None:
        """Make ``wanted`` the pending set and settle it; a refusal unless all its members are open.

        ``None`` to read the record again, also after a lost race.
        """
        states = self._members.states(wanted.members)
        for identifier, state in states.of.items():
            if state is not MemberStatus.OPEN:
                detail = f"transaction {identifier} is {state.name.lower()}"
                return _decision(CommitStatus.REFUSED, detail, found.record, wanted)
        record = found.record.with_pending(wanted)
        failpoint(BEFORE_RECORD, record.sink.destination)
        if not wanted.members:
            self._records.write(found, record.with_outcome(SetState.COMMITTED))
            return None
        made = self._records.write(found, record)
        failpoint(AFTER_RECORD, record.sink.destination)
        if made is not None:
            self._settled(made, states)
        return None

    # Rolling a pending set forward

    def _settled(self, found: VersionedRecord, states: TransactionStates | None = None) -> VersionedRecord | None:
        """Bring the pending set to its end; ``None`` if that cannot be decided. Idempotent: several may do it at once.

        A record that another run changed meanwhile is returned as it is now.
        """
        entry = found.record.entry
        for _ in range(attempts_max):
            if states is None:
                states = self._members.states(entry.members)
            match recovery_step(states.of):
                case RecoveryStep.COMMIT:
                    states = self._members.commit_open(entry.members, states)
                case RecoveryStep.ABORT:
                    states = self._members.abort_open(entry.members, states)
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

    def _mark(self, found: VersionedRecord, state: SetState) -> VersionedRecord:
        made = self._records.write(found, found.record.with_outcome(state))
        return self._records.read(found.record.sink) if made is None else made

    def _unresolved(
        self, found: VersionedRecord, wanted: TransactionSet, policy: UnresolvedPolicy
    ) -> SetDecision | None:
        """Apply ``on_unresolved`` to a pending set that cannot be decided; ``None`` to look at the record again."""
        record, entry = found.record, found.record.entry
        states = self._members.states(entry.members)
        if recovery_step(states.of) is not RecoveryStep.UNRESOLVED:
            return None
        text = unresolved_text(record.sink, entry, states.of)
        replays = policy == "replay" and entry.batch_id == wanted.batch_id
        if policy == "fail":
            recorded = {member.transaction_id for member in entry.members}
            self._members.abort_quietly([item for item in wanted.members if item.transaction_id not in recorded])
            raise BatchUnresolved(
                f"{text}; look into the stream, then set on_unresolved_batch=skip to take that batch as written, or "
                "on_unresolved_batch=replay to write it again"
            )
        if not replays:
            if self._members.commit_open(entry.members, states) is None:
                return None  # Not all that was open is committed yet.
            _log.warning("%s; taken as written (on_unresolved_batch=%s)", text, policy)
            marked = self._mark(found, SetState.COMMITTED).record
            if entry.batch_id != wanted.batch_id or marked.last_batch_id != entry.batch_id:
                return None
            return _decision(CommitStatus.ALREADY_COMMITTED, "", marked, wanted)
        _log.warning("%s; written again (on_unresolved_batch=replay)", text)
        self._members.abort_open(entry.members, states)
        self._mark(found, SetState.REFUSED)
        return None


def _refusal(status: RegisterStatus, detail: str, record: LedgerRecord) -> Registration:
    return Registration(status, detail, record.last_batch_id, 0)


def _decision_of(step: CommitStep, record: LedgerRecord, wanted: TransactionSet, *, is_written: bool) -> SetDecision:
    """The answer of a record that leaves nothing to do. ``is_written``: this commit tried to put its set on record."""
    match step:
        case CommitStep.FENCED:
            return _decision(CommitStatus.FENCED, f"run {record.runs.present} took its place", record, wanted)
        case CommitStep.BEHIND:
            detail = f"the sink is at batch {record.last_batch_id}"
            return _decision(CommitStatus.CHECKPOINT_BEHIND_SINK, detail, record, wanted)
        case CommitStep.DIFFERS:
            return _decision(CommitStatus.REPLAY_DIFFERS, "", record, wanted)
    check(step is CommitStep.COMMITTED_ALREADY, "a step that is no answer", step=step.name)
    # A set with other members is that of a run which was faster: this one's transactions are to be aborted.
    is_own = is_written and record.entry.members == wanted.members
    return _decision(CommitStatus.COMMITTED if is_own else CommitStatus.ALREADY_COMMITTED, "", record, wanted)


def _decision(status: CommitStatus, detail: str, record: LedgerRecord, wanted: TransactionSet) -> SetDecision:
    return SetDecision(status, detail, record.set_of(wanted.batch_id))
