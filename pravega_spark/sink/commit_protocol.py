"""Combines the messages of a batch's tasks into one commit, and interprets its decision.

See docs/controller-api.md 11 and docs/spark-source-and-sink.md A.4.

A task's message says what it wrote and under which identity. The driver combines the messages of a batch, asks for one
decision, and the rules here say what each answer means. All of this is values and pure rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from pravega_common.errors import Fenced, InvalidArgument, PravegaError, RejectedError
from pravega_common.model.transaction_sets import CommitStatus, SetDecision, SetMember, SetState, Sink, TransactionSet
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, UnresolvedPolicy
from pravega_spark.sink.sink_secret import NO_SECRET, SinkSecret

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
RUN_ID_PROPERTY: Final = "spark.jobGroup.id"
APPLICATION_PREFIX: Final = "app:"
"""How the name of a sink begins that ``txn_app_id`` names."""


class ReplayDiffers(RejectedError):
    """A committed batch was replayed with other rows."""


class CheckpointBehindSink(RejectedError):
    """A batch older than the last one committed: the checkpoint of a query went back, or a ``txn_version`` did."""


class BatchRefused(RejectedError):
    """A transaction of the batch was not open any more; nothing of the batch was committed."""


def streaming_identity(
    read_property: Callable[[str], str | None], destination: str, secret: SinkSecret = NO_SECRET, label: str = ""
) -> BatchIdentity:
    """The identity that Spark gives to the tasks of a micro-batch; ``secret``: the one of the query's checkpoint.
    ``label``: the query's name, which is no part of the identity.

    Raises ``InvalidArgument`` when a property is missing: without it a batch cannot be recognised when it comes again,
    and guessing would duplicate rows.
    """
    names = (QUERY_ID_PROPERTY, RUN_ID_PROPERTY, BATCH_ID_PROPERTY)
    values = [read_property(name) for name in names]
    missing = [name for name, value in zip(names, values, strict=True) if not value]
    query_id, run_id, batch_id = (value or "" for value in values)
    if missing or not batch_id.isdecimal():
        raise InvalidArgument(
            f"this task has no usable property {', '.join(missing) or BATCH_ID_PROPERTY}: exactly-once writing works "
            "in streaming queries of Spark 4.0 to 4.3; set exactly_once=false to write at least once"
        )
    return BatchIdentity(replace(secret.sink(query_id, destination), label=label), run_id, int(batch_id))


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The message of one task attempt that wrote in transactions.

    ``size_bytes`` counts events with their headers, also of rows that were only counted.
    """

    identity: BatchIdentity
    partition: int
    events: int
    size_bytes: int
    members: tuple[SetMember, ...]
    segments: int = 0
    """Segments of these transactions."""
    event_time_ms: int | None = None
    """The greatest event time of the rows, if they have one and it is followed."""


def combine(
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int | None = None,
    *,
    on_unresolved: UnresolvedPolicy = "fail",
) -> BatchCommit:
    """All messages of a batch as its commit, members in order of their partitions.

    Raises ``InvalidArgument`` when one is missing or they are not of one batch: then nothing may be committed.
    """
    whole = [message for message in messages if isinstance(message, TaskMessage)]
    if not whole or len(whole) < len(messages):
        raise InvalidArgument(f"{len(messages) - len(whole)} of {len(messages)} tasks have no commit message")
    identity = whole[0].identity
    for message in whole:
        if message.identity != identity:
            raise InvalidArgument(f"tasks of two batches in one commit: {identity} and {message.identity}")
    if batch_id is not None and batch_id != identity.batch_id:
        raise InvalidArgument(f"Spark commits batch {batch_id}, but its tasks wrote {identity}")
    return BatchCommit(
        identity,
        tuple(member for message in sorted(whole, key=lambda item: item.partition) for member in message.members),
        sum(message.events for message in whole),
        sum(message.size_bytes for message in whole),
        on_unresolved,
    )


def segments_of(messages: Sequence[WriterCommitMessage | None]) -> int:
    """The number of transaction segments that the tasks of a batch wrote to."""
    return sum(message.segments for message in messages if isinstance(message, TaskMessage))


def event_times_of(messages: Sequence[WriterCommitMessage | None]) -> list[int | None]:
    """The greatest event time of each task that wrote in transactions."""
    return [message.event_time_ms for message in messages if isinstance(message, TaskMessage)]


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequence of a decision: transactions to abort, whether to wait for readers, an error, a warning."""

    aborts: tuple[SetMember, ...] = ()
    waits: bool = False
    error: PravegaError | None = None
    warning: str = ""


def consequence_of(decision: SetDecision, commit: BatchCommit, on_replay_mismatch: str) -> Consequence:
    """The rules of docs/spark-source-and-sink.md A.4. An error leaves the transactions to ``abort``, which asks for
    the decision."""
    recorded = decision.recorded
    match decision.status:
        case CommitStatus.COMMITTED:
            return Consequence(waits=recorded.state is not SetState.FINISHED)
        case CommitStatus.ALREADY_COMMITTED:
            return Consequence(
                aborts=members_outside(commit.members, recorded), waits=recorded.state is not SetState.FINISHED
            )
        case CommitStatus.REPLAY_DIFFERS:
            return _replay_differs(commit, recorded, on_replay_mismatch)
        case CommitStatus.CHECKPOINT_BEHIND_SINK:
            return Consequence(
                error=CheckpointBehindSink(
                    f"{commit.identity} comes after a later batch was committed ({decision.detail}): "
                    f"{_why_behind(commit.identity.sink)}"
                )
            )
        case CommitStatus.FENCED:
            return Consequence(
                error=Fenced(
                    f"{commit.identity} is refused, another run of this query writes now ({decision.detail}); "
                    "is its checkpoint used twice?"
                )
            )
        case CommitStatus.REFUSED:
            return Consequence(
                error=BatchRefused(f"{commit.identity} was not committed, nothing of it is readable: {decision.detail}")
            )


def _why_behind(sink: Sink) -> str:
    if sink.query_id.startswith(APPLICATION_PREFIX):
        return (
            "txn_version must grow with every write under one txn_app_id; where it is the batch of a query, the "
            "query's checkpoint is older than the stream"
        )
    return "the checkpoint is older than the stream; restore a newer one, or begin a new one and accept repeated rows"


def _replay_differs(commit: BatchCommit, recorded: TransactionSet, on_replay_mismatch: str) -> Consequence:
    text = (
        f"{commit.identity} was committed with {recorded.events} events of {recorded.bytes} bytes and is replayed "
        f"with {commit.events} events of {commit.size_bytes} bytes"
    )
    aborts, waits = members_outside(commit.members, recorded), recorded.state is not SetState.FINISHED
    if commit.events == recorded.events:
        # Sums of floats in another order, a map with its keys in another order: the same rows in other bytes.
        return Consequence(aborts=aborts, waits=waits, warning=f"{text}; the replay is taken for the same")
    if on_replay_mismatch == "skip":
        return Consequence(aborts=aborts, waits=waits, warning=f"{text}; the replay is skipped")
    return Consequence(
        aborts=aborts,
        error=ReplayDiffers(f"{text}; set on_replay_mismatch=skip to keep what was committed and go on"),
    )


def members_outside(members: Sequence[SetMember], recorded: TransactionSet) -> tuple[SetMember, ...]:
    """Transactions of a replay that the recorded decision does not have: they hold nothing that is missing."""
    kept = {member.transaction_id for member in recorded.members}
    return tuple(member for member in members if member.transaction_id not in kept)


def may_abort(recorded: TransactionSet) -> bool:
    """Whether a batch's transactions may be aborted: not once its decision stands or is under way."""
    return recorded.state in (SetState.NONE, SetState.REFUSED)
