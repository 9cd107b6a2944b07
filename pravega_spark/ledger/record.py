"""Defines the record of a sink, by which batches are written exactly once on a plain Pravega, and its rules.

A plain controller cannot decide several transactions as one. So every sink has one record in a table segment, changed
by compare-and-set alone. A batch's set is *pending* on it before the first of its transactions is committed, so a later
run knows the intention and rolls it forward; once all members are certain to be committed the set is *committed* on it,
and may be forgotten by the controller. Which run may write is decided as by the controller's extension
(``SinkRuns``). This module has values and rules only; ``table_ledger.py`` acts on them.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pravega_common.errors import DataCorruption, InvalidArgument, RejectedError
from pravega_common.listed import listed
from pravega_common.model.sink_runs import SinkRuns
from pravega_common.model.transaction_sets import SetMember, SetState, Sink, TransactionSet, label_of

record_version_oldest: Final = 1
record_version: Final = 2
"""Version 1 had no seen runs: tasks entered their runs as drivers do."""
record_bytes_max: Final = 1_000_000
"""Below the 1,040,384 bytes that a table segment takes for a value (docs/wire-protocol.md 2.2)."""
key_bytes_max: Final = 8_192
ids_named_max: Final = 10
TABLE_NAME: Final = "pravega-spark-sinks_kvtable"
"""With the ending that tells table segments from streams (docs/wire-protocol.md 6.2)."""


class BatchUnresolved(RejectedError):
    """The fate of a recorded batch cannot be known; the message names its transactions."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The record of one sink.

    ``last_*``: of the last committed batch. ``entry``: the last set written, ``NONE`` at first. ``touched_ms``: when it
    was written, by the writer's clock; for people only.
    """

    sink: Sink
    runs: SinkRuns
    last_batch_id: int
    last_events: int
    last_bytes: int
    entry: TransactionSet
    touched_ms: int = 0

    @property
    def is_pending(self) -> bool:
        return self.entry.state is SetState.PENDING

    def is_displaced(self, run_id: str) -> bool:
        """Whether another run took this one's place."""
        return self.runs.is_displaced(run_id)

    def seeing(self, run_id: str) -> LedgerRecord:
        """The record after a call by a task; the same record if the run is known already."""
        runs = self.runs.seeing(run_id)
        return self if runs is self.runs else replace(self, runs=runs)

    def called(self, label: str) -> LedgerRecord:
        """The record with the query's name, which decides nothing."""
        return replace(self, sink=replace(self.sink, label=label))

    def with_pending(self, wanted: TransactionSet) -> LedgerRecord:
        """The record with a driver's set, whose run is the present one from now on."""
        return replace(self, runs=self.runs.introducing(wanted.run_id), entry=replace(wanted, state=SetState.PENDING))

    def with_outcome(self, state: SetState) -> LedgerRecord:
        """The record with its pending set committed or refused."""
        entry = replace(self.entry, state=state)
        if state is not SetState.COMMITTED:
            return replace(self, entry=entry)
        return replace(
            self, entry=entry, last_batch_id=entry.batch_id, last_events=entry.events, last_bytes=entry.bytes
        )

    def set_of(self, batch_id: int) -> TransactionSet:
        """The set on record for a batch; state ``NONE`` for one that is older than the last."""
        if batch_id == self.entry.batch_id:
            return self.entry
        if batch_id == self.last_batch_id:
            return TransactionSet(SetState.COMMITTED, batch_id, "", (), self.last_events, self.last_bytes)
        return no_set(batch_id)


def no_set(batch_id: int) -> TransactionSet:
    return TransactionSet(SetState.NONE, batch_id, "", (), 0, 0)


def new_record(sink: Sink) -> LedgerRecord:
    return LedgerRecord(sink, SinkRuns(), -1, 0, 0, no_set(-1))


# Where it is kept, and its bytes


def table_segment(sink: Sink) -> str:
    """One table for all sinks of a scope."""
    return f"{sink.destination.partition('/')[0]}/{TABLE_NAME}/0.#epoch.0"


def key_of(sink: Sink) -> bytes:
    """``InvalidArgument`` for a name that is too long for a key."""
    key = json.dumps([sink.query_id, sink.destination], ensure_ascii=False, separators=(",", ":")).encode()
    if len(key) > key_bytes_max:
        raise InvalidArgument(f"the sink {sink.query_id[:80]}… has a name of {len(key)} bytes, at most {key_bytes_max}")
    return key


def to_bytes(record: LedgerRecord) -> bytes:
    """The record as JSON. ``InvalidArgument`` for more transactions than fit, before anything is committed."""
    entry = record.entry
    streams = sorted({(member.scope, member.stream) for member in entry.members})
    index = {name: number for number, name in enumerate(streams)}
    value: dict[str, Any] = {
        "version": record_version,
        "query": record.sink.query_id,
        "destination": record.sink.destination,
        "touched_ms": record.touched_ms,
        "runs": record.runs.introduced,
        "seen": record.runs.seen,
        "last_batch": record.last_batch_id,
        "last_events": record.last_events,
        "last_bytes": record.last_bytes,
        "state": entry.state.name,
        "batch": entry.batch_id,
        "run": entry.run_id,
        "events": entry.events,
        "bytes": entry.bytes,
        "streams": streams,
        "members": [
            [index[item.scope, item.stream], item.transaction_id.hex, item.partition, item.events, item.bytes]
            for item in entry.members
        ],
    }
    if record.sink.label:
        value["label"] = record.sink.label
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) > record_bytes_max:
        raise InvalidArgument(
            f"batch {entry.batch_id} has {len(entry.members)} transactions, and their record of {len(data)} bytes is "
            f"over the limit of {record_bytes_max}; write with fewer tasks (coalesce, spark.sql.shuffle.partitions)"
        )
    return data


def from_bytes(data: bytes) -> LedgerRecord:
    """Parse a record. ``DataCorruption`` for other bytes, ``InvalidArgument`` for a newer version."""
    try:
        value: dict[str, Any] = json.loads(data)
        version = value["version"]
        if version in range(record_version_oldest, record_version + 1):
            return _parsed(value, value["seen"] if version > 1 else ())
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataCorruption(f"the record of a sink cannot be read ({error}): {data[:80]!r}") from error
    raise InvalidArgument(
        f"the record of this sink has version {version}, this connector reads versions {record_version_oldest} to "
        f"{record_version}; use the connector that wrote it, or a newer one"
    )


def _parsed(value: dict[str, Any], seen: Iterable[str]) -> LedgerRecord:
    members = []
    for stream, identifier, partition, events, size in value["members"]:
        scope, name = value["streams"][stream]
        members.append(SetMember(scope, name, uuid.UUID(hex=identifier), int(partition), int(events), int(size)))
    entry = TransactionSet(
        SetState[value["state"]], value["batch"], value["run"], tuple(members), value["events"], value["bytes"]
    )
    return LedgerRecord(
        Sink(value["query"], value["destination"], label=label_of(str(value.get("label", "")))),
        SinkRuns(tuple(value["runs"]), tuple(seen)),
        int(value["last_batch"]),
        int(value["last_events"]),
        int(value["last_bytes"]),
        entry,
        int(value["touched_ms"]),
    )


# What to do next


class CommitStep(enum.Enum):
    """The next step of a commit, given the record."""

    FENCED = enum.auto()
    ROLL_FORWARD = enum.auto()
    """Settle the pending set first."""
    BEHIND = enum.auto()
    COMMITTED_ALREADY = enum.auto()
    DIFFERS = enum.auto()
    PUT = enum.auto()
    """Make the wanted set the pending one."""


def commit_step(record: LedgerRecord, wanted: TransactionSet) -> CommitStep:
    if record.is_displaced(wanted.run_id):
        return CommitStep.FENCED
    if record.is_pending:
        return CommitStep.ROLL_FORWARD
    if wanted.batch_id < record.last_batch_id:
        return CommitStep.BEHIND
    if wanted.batch_id == record.last_batch_id:
        same = (record.last_events, record.last_bytes) == (wanted.events, wanted.bytes)
        return CommitStep.COMMITTED_ALREADY if same else CommitStep.DIFFERS
    return CommitStep.PUT


class MemberStatus(enum.Enum):
    """The decision about a member, if there is one: a plain controller never takes it back.

    See docs/controller-api.md 4.3.
    """

    OPEN = enum.auto()
    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    UNKNOWN = enum.auto()
    """Forgotten by the controller, or never there: never to be read as aborted."""


class RecoveryStep(enum.Enum):
    """The next step of a recorded set, given the states of its members."""

    COMMIT = enum.auto()
    """Commit the open ones."""
    COMMITTED = enum.auto()
    ABORT = enum.auto()
    """Some are aborted and none is committed: abort the open ones, so that the set is proven aborted."""
    ABORTED = enum.auto()
    UNRESOLVED = enum.auto()


def recovery_step(states: Mapping[uuid.UUID, MemberStatus]) -> RecoveryStep:
    found = set(states.values())
    if MemberStatus.UNKNOWN in found or found >= {MemberStatus.COMMITTED, MemberStatus.ABORTED}:
        return RecoveryStep.UNRESOLVED
    if MemberStatus.ABORTED in found:
        return RecoveryStep.ABORT if MemberStatus.OPEN in found else RecoveryStep.ABORTED
    return RecoveryStep.COMMIT if MemberStatus.OPEN in found else RecoveryStep.COMMITTED


def unresolved_text(sink: Sink, entry: TransactionSet, states: Mapping[uuid.UUID, MemberStatus]) -> str:
    """The error text of a batch that cannot be decided: names its transactions by state, up to a limit."""
    kinds = []
    for state in MemberStatus:
        ids = [str(item) for item, found in states.items() if found is state]
        if ids:
            kinds.append(f"{state.name.lower()}: {listed(ids, ids_named_max)}")
    return (
        f"batch {entry.batch_id} of {sink.query_id} into {sink.destination} was begun by run {entry.run_id}, and "
        f"whether all of its {entry.events} events are in the stream cannot be decided ({'; '.join(kinds)})"
    )
