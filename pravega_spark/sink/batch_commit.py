"""Commits and aborts batches, on the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from pravega_common.errors import PravegaError, Unavailable
from pravega_common.model.transaction_sets import SetState, Sink
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.sink.commit_protocol import (
    TaskMessage,
    combine,
    consequence_of,
    event_times_of,
    may_abort,
    segments_of,
)
from pravega_spark.sink.event_time_notes import note_event_time
from pravega_spark.sink.transaction_writer import abort_quietly

_log = logging.getLogger(__name__)

BEFORE_DECISION: Final = register("spark.commit.before_decision")
AFTER_DECISION: Final = register("spark.commit.after_decision")
BEFORE_RETURN: Final = register("spark.commit.before_return")

segments_advised_max: Final = 1000
"""Transaction segments of a batch; making and merging more takes longer than it should."""
sinks_advised_max: Final = 1000
_advised: set[Sink] = set()

readable_wait_ms: Final = 1_000
"""How long the controller that makes a decided batch readable may wait with its answer; others answer at once."""
first_poll_s: Final = 0.004
readable_time_max_s: Final = 300.0
"""How long a commit waits until a decided batch can be read; the decision stands in any case."""


def commit_batch(
    gateway: StreamGateway,
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> None:
    """Decide the batch of these messages, once and whole; returns when it is decided, and readable if so wished.

    Raises ``ReplayDiffers``, ``CheckpointBehindSink``, ``Fenced``, ``BatchRefused``, ``BatchUnresolved``: the batch is
    then not committed by this call; and ``Unavailable`` or ``UnknownOutcome``, after which Spark runs the batch again
    and finds the decision.
    """
    commit = combine(messages, batch_id, on_unresolved=options.on_unresolved_batch)
    identity = commit.identity
    _advise(identity, segments_of(messages))
    failpoint(BEFORE_DECISION, identity.sink.destination)
    decision = gateway.commit_transaction_set(commit)
    failpoint(AFTER_DECISION, identity.sink.destination)
    consequence = consequence_of(decision, commit, options.on_replay_mismatch)
    for member in consequence.aborts:
        abort_quietly(gateway, member)
    if consequence.warning:
        _log.warning("%s", consequence.warning)
    if consequence.error is not None:
        raise consequence.error
    if consequence.waits and options.read_after_write_consistency:
        poll_s = options.transaction_status_poll_interval_ms / 1000
        _wait_until_readable(gateway, identity, poll_s, sleep, monotonic_s)
    members = decision.recorded.members or commit.members
    streams = sorted({(member.scope, member.stream) for member in members})
    note_event_time(gateway, identity.sink.query_id, streams, event_times_of(messages))
    failpoint(BEFORE_RETURN, identity.sink.destination)


def _advise(identity: BatchIdentity, segments: int) -> None:
    """Warn of too many segments, once per query in the process that commits its batches."""
    sink = identity.sink
    if segments > segments_advised_max and sink not in _advised and len(_advised) < sinks_advised_max:
        _advised.add(sink)
        _log.warning(
            "%s wrote %d transaction segments (its tasks times the segments of the stream), which makes its commit "
            "slow; write with fewer tasks: coalesce(n) before the sink, or a smaller spark.sql.shuffle.partitions",
            identity,
            segments,
        )


def _wait_until_readable(
    gateway: StreamGateway,
    identity: BatchIdentity,
    poll_s: float,
    sleep: Callable[[float], None],
    monotonic_s: Callable[[], float],
) -> None:
    """Wait until readers see a decided batch.

    The controller that does the work answers when it is done. Another one is asked soon, since a small batch is merged
    in milliseconds; the pauses double up to ``poll_s``.
    """
    deadline_s = monotonic_s() + readable_time_max_s
    delay_s = min(first_poll_s, poll_s)
    while True:
        recorded, last = gateway.transaction_set(identity.sink, identity.batch_id, readable_wait_ms)
        if recorded.state is SetState.FINISHED or last > identity.batch_id:
            return
        if monotonic_s() > deadline_s:
            raise Unavailable(f"{identity} is committed, but could not be read after {readable_time_max_s:.0f} s")
        sleep(delay_s)
        delay_s = min(delay_s * 2, poll_s)


def abort_batch(gateway: StreamGateway, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what a batch wrote, unless it is decided or its decision is under way: Spark calls this after a failed
    commit too. Never raises: the query's own error must stay, and leases end what is left.
    """
    written = [message for message in messages if isinstance(message, TaskMessage) and message.members]
    if not written:
        return
    identity = written[0].identity
    try:
        recorded, _ = gateway.transaction_set(identity.sink, identity.batch_id)
    except PravegaError as error:
        _log.warning("%s was not aborted, its decision is not known: %s", identity, error)
        return
    if not may_abort(recorded):
        return
    for message in written:
        for member in message.members:
            abort_quietly(gateway, member)
