"""Runs on executors: the rows of one task as one transaction of its batch."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from pravega_common.errors import Fenced, NoSuchSegment, PravegaError, SegmentSealed
from pravega_common.names import transaction_segment_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.commit_protocol import BatchIdentity, TaskMessage
from pravega_spark.framing import Int64s, event_lengths
from pravega_spark.gateway import StreamGateway
from pravega_spark.lease_keeper import LeaseKeeper
from pravega_spark.routing import RowRouter
from pravega_spark.rows import SinkColumns
from pravega_spark.segment_writers import SegmentWriters, Tally
from pravega_streams.controller.transaction_sets import RegisterStatus, Registration, SetMember
from pravega_streams.errors import TransactionFailed

_log = logging.getLogger(__name__)

TRANSACTION_BEGUN: Final = register("spark.task.transaction_begun")
TRANSACTION_REGISTERED: Final = register("spark.task.transaction_registered")
ROWS_WRITTEN: Final = register("spark.task.rows_written")
ROWS_DURABLE: Final = register("spark.task.rows_durable")


class _Transaction:
    """An open transaction bound to its batch, its writers, and the thread that keeps it open."""

    def __init__(self, member: SetMember, writers: SegmentWriters, keeper: LeaseKeeper) -> None:
        self.member = member
        self.writers = writers
        self.keeper = keeper

    def write(self, batch: pa.RecordBatch, columns: SinkColumns, lengths: Int64s) -> None:
        router = self.writers.router
        positions = None
        if len(router.segments) > 1:
            positions = router.positions(columns.keys_of(batch), lengths)
        self.writers.write(columns.events_of(batch), lengths, positions)

    def end(self) -> None:
        self.keeper.stop()
        self.writers.close()


class PartitionWriter:
    """Writes one task's rows and tells what it wrote; commits nothing.

    The transaction is begun at the first row. Where the batch turns out to be decided already (a replay, or an attempt
    that is too late), the rows are read to their end and counted, so that the driver can compare.
    """

    def __init__(
        self,
        gateway: StreamGateway,
        identity: BatchIdentity,
        scope: str,
        stream: str,
        columns: SinkColumns,
        *,
        partition: int,
        lease_ms: int,
    ) -> None:
        self._gateway = gateway
        self._identity = identity
        self._scope = scope
        self._stream = stream
        self._columns = columns
        self._partition = partition
        self._lease_ms = lease_ms
        self._transaction: _Transaction | None = None
        self._only_counts = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """Raises ``InvalidArgument`` for null or too large events, ``Fenced``, ``TransactionFailed``."""
        tally = Tally()
        try:
            for batch in batches:
                if batch.num_rows:
                    lengths = event_lengths(self._columns.events_of(batch))
                    self._write(batch, lengths)
                    tally.add(lengths)
            failpoint(ROWS_WRITTEN)
            self._guarded_flush()
            failpoint(ROWS_DURABLE)
        except BaseException:
            self._give_up()
            raise
        return self._message(tally)

    def _message(self, tally: Tally) -> TaskMessage:
        members: tuple[SetMember, ...] = ()
        if self._transaction is not None:
            self._transaction.end()
            bound = self._transaction.member
            members = (
                SetMember(
                    bound.scope, bound.stream, bound.transaction_id, bound.partition, tally.events, tally.size_bytes
                ),
            )
        return TaskMessage(self._identity, self._partition, tally.events, tally.size_bytes, members)

    def _write(self, batch: pa.RecordBatch, lengths: Int64s) -> None:
        if self._transaction is None and not self._only_counts:
            self._begin()
        if self._transaction is None:
            return
        if self._transaction.keeper.refusal is not None:
            self._refused(self._transaction.keeper.refusal)
            return
        try:
            self._transaction.write(batch, self._columns, lengths)
        except (NoSuchSegment, SegmentSealed) as error:
            self._lost(error)

    def _guarded_flush(self) -> None:
        if self._transaction is None:
            return
        try:
            self._transaction.writers.flush()
        except (NoSuchSegment, SegmentSealed) as error:
            self._lost(error)

    def _begin(self) -> None:
        """Begin a transaction and bind it to the batch before anything is written to it."""
        made = self._gateway.create_transaction(self._scope, self._stream, self._lease_ms)
        failpoint(TRANSACTION_BEGUN)
        member = SetMember(self._scope, self._stream, made.transaction_id, self._partition)
        router = RowRouter(made.segments, random.getrandbits(16))
        writers = SegmentWriters(
            self._gateway, router, lambda segment: transaction_segment_name(segment.name, made.transaction_id)
        )
        answer = self._register(member)
        failpoint(TRANSACTION_REGISTERED)
        keeper = LeaseKeeper(lambda: self._register(member), answer.renewed_for_ms)
        self._transaction = _Transaction(member, writers, keeper)
        if answer.status is RegisterStatus.REGISTERED:
            keeper.start()
        else:
            self._refused(answer)

    def _register(self, member: SetMember) -> Registration:
        identity = self._identity
        return self._gateway.register_transactions(identity.sink, identity.run_id, identity.batch_id, [member])

    def _lost(self, error: PravegaError) -> None:
        """A transaction segment took no bytes: ask what became of the transaction."""
        transaction = self._transaction
        if transaction is not None:
            self._refused(self._register(transaction.member), error)

    def _refused(self, answer: Registration, cause: PravegaError | None = None) -> None:
        """Go on counting when the batch is decided, else fail the task."""
        if answer.status is RegisterStatus.BATCH_DECIDED:
            self._give_up()
            self._only_counts = True
            return
        if answer.status is RegisterStatus.FENCED:
            raise Fenced(
                f"{self._identity} may not write, another run of this query does ({answer.detail}); "
                "is its checkpoint used twice?"
            ) from cause
        raise TransactionFailed(
            f"the transaction of partition {self._partition} of {self._identity} is not open any more "
            f"({answer.detail or cause}); the task must run again"
        ) from cause

    def _give_up(self) -> None:
        """Abort what was begun; if that fails too, its lease or the batch's commit ends it."""
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        transaction.end()
        abort_quietly(self._gateway, transaction.member)


def abort_quietly(gateway: StreamGateway, member: SetMember) -> None:
    """Abort a transaction that nobody needs; a failure is logged, the lease ends it anyway."""
    try:
        gateway.abort_transaction(member.scope, member.stream, member.transaction_id)
    except PravegaError as error:
        _log.info("transaction %s was not aborted, its lease will end it: %s", member.transaction_id, error)
