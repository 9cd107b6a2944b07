"""Decides the steps of sinks and their transaction sets: a state machine without I/O.

A *sink* is (query id, destination), a *run* is one start of the query, a *set* is what one batch of the sink commits.
``step(record, event)`` gives the sink's next record and what that means for the caller. The caller writes the
record by compare-and-set; when that fails it reads again and repeats the step.

One set at a time is pending; the step from pending to committed is the commit point. Anything newer than a pending
set replaces it, nothing replaces a committed one but the next batch, and that only once the committed members stand in
the commit orders of their streams.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from controller_service.sets.sink_secrets import is_stranger, refusal
from controller_service.transactions.records import SetReference
from pravega_common.model.sink_runs import SinkRuns

open_batches_max: Final = 64
"""Undecided batches of one sink that may have transactions; old ones whose tasks went silent make room."""
members_max: Final = 5_000
"""Transactions of one set."""


class SetRecordState(enum.Enum):
    PENDING = "pending"
    COMMITTED = "committed"
    ORDERED = "ordered"
    """Every member stands in the commit order of its stream."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class MemberRecord:
    stream: str
    """``scope/stream``."""
    transaction: str
    """32 hex digits."""
    partition: int = 0
    events: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SetRecord:
    """``sequence`` names the set within its sink and is never given to another.

    ``ordered_streams``: noted while the set is ``COMMITTED`` because of other streams, whose order cannot be had yet.
    ``stream_ids``: by stream, the id of the one of that name which has the members. A set that is not committed has
    none, nor has one of an earlier version.
    """

    sequence: int
    batch_id: int
    run_id: str
    members: tuple[MemberRecord, ...]
    events: int
    bytes: int
    state: SetRecordState
    started_ms: int
    ordered_streams: tuple[str, ...] = ()
    stream_ids: dict[str, str] = field(default_factory=dict)

    @property
    def unordered(self) -> tuple[MemberRecord, ...]:
        """The members that are not known to stand in the commit orders of their streams."""
        return tuple(member for member in self.members if member.stream not in self.ordered_streams)


@dataclass(frozen=True, slots=True)
class RefusedSet:
    sequence: int
    batch_id: int
    run_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class SinkRecord:
    query_id: str
    destination: str
    runs: tuple[str, ...] = ()
    """The last ones that drivers introduced, the present one at the end."""
    sequence: int = 0
    """The number of the latest set."""
    last: SetRecord | None = None
    """The committed set with the highest batch id."""
    pending: SetRecord | None = None
    refused: RefusedSet | None = None
    open_batches: tuple[int, ...] = ()
    """Batches with registered transactions that are not cleared up: undecided ones, and for a short while later."""
    touched_ms: int = 0
    indexed: bool = False
    """Whether the index of sinks with work to do has it (``sink_index.py``)."""
    expiry_day: int = -1
    """The last day on which it is looked at for being forgotten."""
    seen_runs: tuple[str, ...] = ()
    """Runs known from their tasks alone (``SinkRuns``); records of older versions have none."""
    secret_hash: str = ""
    """The hash of the secret that calls must show (``sink_secrets.py``); empty until one is shown."""
    label: str = ""
    """The name of the query, from its last call to commit; for people, and no part of any decision."""

    @classmethod
    def blank(cls, key: str) -> SinkRecord:
        return cls(query_of(key), destination_of(key))

    @property
    def known_runs(self) -> SinkRuns:
        return SinkRuns(self.runs, self.seen_runs)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do for a sweep."""
        is_finished = self.last is None or self.last.state is SetRecordState.FINISHED
        return self.pending is None and not self.open_batches and is_finished

    @property
    def last_batch_id(self) -> int:
        return -1 if self.last is None else self.last.batch_id

    @property
    def decided_batches(self) -> tuple[int, ...]:
        return tuple(batch for batch in self.open_batches if batch <= self.last_batch_id)

    def holds(self, sequence: int) -> bool:
        """Whether members bound to this set must stay bound: it may still commit, or has."""
        held = (self.pending, self.last)
        return any(record is not None and record.sequence == sequence for record in held)


def sink_key(query_id: str, destination: str) -> str:
    """The name of a sink in tables and references; unambiguous, as the first part's length is in it."""
    return f"{len(query_id)}:{query_id}:{destination}"


def query_of(key: str) -> str:
    """The first part of a sink's name."""
    length, _, rest = key.partition(":")
    return rest[: int(length)]


def destination_of(key: str) -> str:
    """The second part of a sink's name."""
    length, _, rest = key.partition(":")
    return rest[int(length) + 1 :]


def reference(record: SinkRecord, sequence: int) -> SetReference:
    return SetReference(sink_key(record.query_id, record.destination), sequence)


# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A task announces transactions of a batch."""

    run_id: str
    batch_id: int
    now_ms: int
    secret_hash: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """The driver asks to commit a batch."""

    run_id: str
    batch_id: int
    members: tuple[MemberRecord, ...]
    events: int
    bytes: int
    now_ms: int
    secret_hash: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class AllBound:
    """Every member of the pending set is bound to it, in the streams of these ids."""

    sequence: int
    now_ms: int
    stream_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The pending set cannot commit."""

    sequence: int
    detail: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The committed set got further: ``ORDERED`` or ``FINISHED``."""

    sequence: int
    state: SetRecordState
    now_ms: int


@dataclass(frozen=True, slots=True)
class StreamsOrdered:
    """The members of these streams stand in the commit orders, those of others could not be put there yet."""

    sequence: int
    streams: tuple[str, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class BatchesCleared:
    """The registered transactions of these batches have all ended."""

    batches: tuple[int, ...]
    now_ms: int


Event = Register | Commit | AllBound | Refuse | Advance | StreamsOrdered | BatchesCleared


# ---- outcomes --------------------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    REGISTERED = "registered"
    BATCH_DECIDED = "batch_decided"
    FENCED = "fenced"
    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"
    REPLAY_DIFFERS = "replay_differs"
    CHECKPOINT_BEHIND_SINK = "checkpoint_behind_sink"
    REFUSED = "refused"
    BIND = "bind"
    """Not an answer: bind the members of the pending set, then say ``AllBound`` or ``Refuse``."""
    ORDER_PREVIOUS = "order_previous"
    """Not an answer: put the last set's members in order, say ``Advance``, then ask again."""
    RECORDED = "recorded"
    """The event is in the record."""
    OBSOLETE = "obsolete"
    """The event is about a set that is not there any more; nothing was changed."""
    TOO_MANY_BATCHES = "too_many_batches"
    STRANGER = "stranger"
    """The caller does not show the sink's secret; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Step:
    record: SinkRecord
    """Equal to the old one when there is nothing to write."""
    verdict: Verdict
    detail: str = ""
    set: SetRecord | None = None


def step(record: SinkRecord, event: Event) -> Step:
    """The next record of a sink and what follows from the event."""
    match event:
        case Register():
            return _register(record, event)
        case Commit():
            return _commit(record, event)
        case AllBound():
            return _all_bound(record, event)
        case Refuse():
            return _refuse(record, event)
        case Advance():
            return _advance(record, event)
        case StreamsOrdered():
            return _streams_ordered(record, event)
        case BatchesCleared():
            kept = tuple(batch for batch in record.open_batches if batch not in event.batches)
            return Step(dataclasses.replace(record, open_batches=kept), Verdict.RECORDED)


def _fenced(record: SinkRecord, run_id: str) -> Step:
    return Step(
        record,
        Verdict.FENCED,
        f"run {run_id} of query {record.query_id} was displaced by run {record.runs[-1]}: a second driver works on the "
        "same query, or its checkpoint was copied",
    )


def _stranger(record: SinkRecord, shown: str) -> Step:
    return Step(record, Verdict.STRANGER, refusal(record.query_id, record.destination, shown))


def _claimed(record: SinkRecord, shown: str) -> SinkRecord:
    """Only calls that are not refused give a sink its secret."""
    return record if record.secret_hash else dataclasses.replace(record, secret_hash=shown)


def _with_runs(record: SinkRecord, runs: SinkRuns, now_ms: int) -> SinkRecord:
    if runs == record.known_runs:
        return record
    return dataclasses.replace(record, runs=runs.introduced, seen_runs=runs.seen, touched_ms=now_ms)


def _introduced(record: SinkRecord, run_id: str, now_ms: int) -> SinkRecord:
    """A driver's run takes over the sink; what the displaced one has pending is refused."""
    pending = record.pending
    if pending is not None and record.known_runs.present != run_id:
        record = dataclasses.replace(
            record, pending=None, refused=_refusal(pending, f"run {run_id} took over the sink"), touched_ms=now_ms
        )
    return _with_runs(record, record.known_runs.introducing(run_id), now_ms)


def _refusal(pending: SetRecord, detail: str) -> RefusedSet:
    return RefusedSet(pending.sequence, pending.batch_id, pending.run_id, detail)


def _register(record: SinkRecord, event: Register) -> Step:
    if is_stranger(record.secret_hash, event.secret_hash):
        return _stranger(record, event.secret_hash)
    if record.known_runs.is_displaced(event.run_id):
        return _fenced(record, event.run_id)
    record = _with_runs(_claimed(record, event.secret_hash), record.known_runs.seeing(event.run_id), event.now_ms)
    if event.batch_id <= record.last_batch_id:
        return Step(record, Verdict.BATCH_DECIDED, f"batch {record.last_batch_id} is committed")
    if event.batch_id in record.open_batches:
        return Step(record, Verdict.REGISTERED)
    if len(record.open_batches) >= open_batches_max:
        detail = f"{len(record.open_batches)} undecided batches have open transactions; {open_batches_max} may"
        return Step(record, Verdict.TOO_MANY_BATCHES, detail)
    batches = tuple(sorted((*record.open_batches, event.batch_id)))
    return Step(dataclasses.replace(record, open_batches=batches, touched_ms=event.now_ms), Verdict.REGISTERED)


def _commit(record: SinkRecord, event: Commit) -> Step:
    if is_stranger(record.secret_hash, event.secret_hash):
        return _stranger(record, event.secret_hash)
    if record.known_runs.is_displaced(event.run_id):
        return _fenced(record, event.run_id)
    last = record.last
    if last is not None and event.batch_id <= last.batch_id:
        return _commit_again(record, last, event)
    record = _introduced(_claimed(record, event.secret_hash), event.run_id, event.now_ms)
    if last is not None and last.state is SetRecordState.COMMITTED:
        return Step(record, Verdict.ORDER_PREVIOUS, set=last)
    pending = record.pending
    if pending is not None and _same_request(pending, event):
        return Step(record, Verdict.BIND, set=pending)
    refused = record.refused if pending is None else _refusal(pending, "replaced by a later request")
    sequence = record.sequence + 1
    new = SetRecord(
        sequence,
        event.batch_id,
        event.run_id,
        in_partition_order(event.members),
        event.events,
        event.bytes,
        SetRecordState.PENDING,
        event.now_ms,
    )
    written = dataclasses.replace(
        record, sequence=sequence, pending=new, refused=refused, touched_ms=event.now_ms, label=event.label
    )
    return Step(written, Verdict.BIND, set=new)


def _commit_again(record: SinkRecord, last: SetRecord, event: Commit) -> Step:
    """Answer a batch that is decided. It displaces nobody: a run that repeats what the present one did may be a driver
    that was stopped before its first call and goes on now. A run that is newer shows it with its first new batch.
    """
    if event.batch_id < last.batch_id:
        return Step(
            record,
            Verdict.CHECKPOINT_BEHIND_SINK,
            f"batch {event.batch_id} was asked for, but the sink has committed batch {last.batch_id}: the checkpoint "
            "went back, and skipping the batch would lose its rows",
            last,
        )
    if (event.events, event.bytes) == (last.events, last.bytes):
        seen = record.known_runs.seeing(event.run_id)
        repeated = _with_runs(_claimed(record, event.secret_hash), seen, event.now_ms)
        return Step(repeated, Verdict.ALREADY_COMMITTED, set=last)
    return Step(
        record,
        Verdict.REPLAY_DIFFERS,
        f"batch {last.batch_id} was committed with {last.events} events of {last.bytes} bytes, the replay has "
        f"{event.events} events of {event.bytes} bytes",
        last,
    )


def _same_request(pending: SetRecord, event: Commit) -> bool:
    return (
        pending.batch_id == event.batch_id
        and pending.run_id == event.run_id
        and pending.members == in_partition_order(event.members)
        and (pending.events, pending.bytes) == (event.events, event.bytes)
    )


def _all_bound(record: SinkRecord, event: AllBound) -> Step:
    pending = record.pending
    if pending is None or pending.sequence != event.sequence:
        return Step(record, Verdict.OBSOLETE)
    # A set without members has nothing to put in order and nothing to finish.
    state = SetRecordState.COMMITTED if pending.members else SetRecordState.FINISHED
    committed = dataclasses.replace(pending, state=state, stream_ids=event.stream_ids)
    written = dataclasses.replace(record, last=committed, pending=None, refused=None, touched_ms=event.now_ms)
    return Step(written, Verdict.COMMITTED, set=committed)


def _refuse(record: SinkRecord, event: Refuse) -> Step:
    pending = record.pending
    if pending is None or pending.sequence != event.sequence:
        return Step(record, Verdict.OBSOLETE)
    written = dataclasses.replace(
        record, pending=None, refused=_refusal(pending, event.detail), touched_ms=event.now_ms
    )
    return Step(written, Verdict.REFUSED, event.detail, pending)


_PROGRESS: Final = (SetRecordState.PENDING, SetRecordState.COMMITTED, SetRecordState.ORDERED, SetRecordState.FINISHED)


def _advance(record: SinkRecord, event: Advance) -> Step:
    last = record.last
    if last is None or last.sequence != event.sequence:
        return Step(record, Verdict.OBSOLETE)
    if _PROGRESS.index(event.state) <= _PROGRESS.index(last.state):
        return Step(record, Verdict.RECORDED, set=last)
    advanced = dataclasses.replace(last, state=event.state)
    return Step(dataclasses.replace(record, last=advanced), Verdict.RECORDED, set=advanced)


def _streams_ordered(record: SinkRecord, event: StreamsOrdered) -> Step:
    last = record.last
    if last is None or last.sequence != event.sequence:
        return Step(record, Verdict.OBSOLETE)
    if last.state is not SetRecordState.COMMITTED:
        return Step(record, Verdict.RECORDED, set=last)
    noted = dataclasses.replace(last, ordered_streams=tuple(sorted({*last.ordered_streams, *event.streams})))
    return Step(dataclasses.replace(record, last=noted), Verdict.RECORDED, set=noted)


def in_partition_order(members: Sequence[MemberRecord]) -> tuple[MemberRecord, ...]:
    """The order in which a set's members become readable, the same for every permutation of one request."""
    return tuple(sorted(members, key=lambda member: (member.partition, member.stream, member.transaction)))


def forgotten(record: SinkRecord, now_ms: int) -> SinkRecord:
    """The record of a sink that starts over. Its sets go on counting: transactions may still name the old numbers."""
    return SinkRecord(
        record.query_id,
        record.destination,
        sequence=record.sequence,
        touched_ms=now_ms,
        indexed=record.indexed,
        expiry_day=record.expiry_day,
    )


# ---- questions -------------------------------------------------------------------------------------------------------


def decision(record: SinkRecord | None, batch_id: int) -> SetRecord | RefusedSet | None:
    """The decision about a batch: its committed or pending set, its last refusal, or None.

    Of batches below the last committed one nothing is known any more but that they are decided.
    """
    if record is None:
        return None
    for held in (record.last, record.pending):
        if held is not None and held.batch_id == batch_id:
            return held
    if record.refused is not None and record.refused.batch_id == batch_id:
        return record.refused
    return None
