"""Runs on executors: the rows of one task as transactions of its batch, one for each stream that it writes to."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pravega_common.errors import Fenced, NoSuchSegment, PravegaError, SegmentSealed
from pravega_common.model.transaction_sets import RegisterStatus, Registration, SetMember
from pravega_common.names import transaction_segment_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.ledger.batch import BatchIdentity, BatchRegistration
from pravega_spark.options.given import StreamName
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.rows.framing import event_lengths
from pravega_spark.sink.commit_protocol import TaskMessage
from pravega_spark.sink.destinations import Destinations, StreamRows
from pravega_spark.sink.lease_keeper import LeaseKeeper
from pravega_spark.sink.routing import RowRouter
from pravega_spark.sink.segment_writers import SegmentWriters, Tally
from pravega_streams.errors import TransactionFailed

_log = logging.getLogger(__name__)

TRANSACTION_BEGUN: Final = register("spark.task.transaction_begun")
TRANSACTION_REGISTERED: Final = register("spark.task.transaction_registered")
ROWS_WRITTEN: Final = register("spark.task.rows_written")
ROWS_DURABLE: Final = register("spark.task.rows_durable")


class _Transaction:
    """An open transaction bound to its batch, and its writers."""

    def __init__(self, member: SetMember, writers: SegmentWriters) -> None:
        self.member = member
        self.writers = writers
        self._tally = Tally()

    @property
    def segments(self) -> int:
        return len(self.writers.router.segments)

    def write(self, part: StreamRows, columns: SinkColumns) -> None:
        self._tally.add(part.lengths)
        router = self.writers.router
        positions = None
        if len(router.segments) > 1:
            positions = router.positions(columns.keys_of(part.rows), part.lengths)
        self.writers.write(columns.events_of(part.rows), part.lengths, positions)

    def counted(self) -> SetMember:
        """The member with what was written to it."""
        return replace(self.member, events=self._tally.events, bytes=self._tally.size_bytes)


class TransactionWriter:
    """Writes one task's rows and tells what it wrote; commits nothing.

    A stream's transaction is begun at its first row. Where the batch turns out to be decided already (a replay, or an
    attempt that is too late), the rows are read to their end and counted, so that the driver can compare.
    """

    def __init__(
        self,
        gateway: StreamGateway,
        identity: BatchIdentity,
        destinations: Destinations,
        columns: SinkColumns,
        *,
        partition: int,
        lease_ms: int,
        prepare: Callable[[str, str], None] | None = None,
    ) -> None:
        """``prepare(scope, stream)`` is called before a stream's transaction is begun."""
        self._gateway = gateway
        self._identity = identity
        self._destinations = destinations
        self._columns = columns
        self._partition = partition
        self._lease_ms = lease_ms
        self._prepare = prepare
        self._transactions: dict[StreamName, _Transaction] = {}
        self._members: tuple[SetMember, ...] = ()
        """Replaced as a whole: the keeper's thread reads it."""
        self._keeper: LeaseKeeper | None = None
        self._only_counts = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """Raises ``InvalidArgument`` for null or too large events and bad destinations, ``Fenced``,
        ``TransactionFailed``.
        """
        tally = Tally()
        try:
            for batch in batches:
                if batch.num_rows:
                    lengths = event_lengths(self._columns.events_of(batch))
                    for part in self._destinations.split(batch, self._columns, lengths):
                        self._write(part)
                    tally.add(lengths)
            failpoint(ROWS_WRITTEN, self._identity.sink.destination)
            self._guarded_flush()
            failpoint(ROWS_DURABLE, self._identity.sink.destination)
        except BaseException:
            self._give_up()
            raise
        return self._message(tally)

    def _message(self, tally: Tally) -> TaskMessage:
        self._end()
        written = self._transactions.values()
        return TaskMessage(
            self._identity,
            self._partition,
            tally.events,
            tally.size_bytes,
            tuple(transaction.counted() for transaction in written),
            sum(transaction.segments for transaction in written),
        )

    def _write(self, part: StreamRows) -> None:
        if self._only_counts:
            return
        if part.stream not in self._transactions:
            self._begin(part.stream)
        refusal = None if self._keeper is None else self._keeper.refusal
        if refusal is not None:
            self._refused(refusal)
        transaction = self._transactions.get(part.stream)
        if transaction is None:
            return
        try:
            transaction.write(part, self._columns)
        except (NoSuchSegment, SegmentSealed) as error:
            self._lost(transaction, error)

    def _guarded_flush(self) -> None:
        """All streams are sent to before the first is waited for."""
        for step in (SegmentWriters.start_flush, SegmentWriters.flush):
            for transaction in list(self._transactions.values()):
                if self._only_counts:
                    return
                try:
                    step(transaction.writers)
                except (NoSuchSegment, SegmentSealed) as error:
                    self._lost(transaction, error)

    def _begin(self, name: StreamName) -> None:
        """Begin a transaction and bind it to the batch before anything is written to it."""
        if self._prepare is not None:
            self._prepare(*name)
        made = self._gateway.create_transaction(*name, self._lease_ms)
        failpoint(TRANSACTION_BEGUN, self._identity.sink.destination)
        member = SetMember(*name, made.transaction_id, self._partition)
        router = RowRouter(made.segments, random.getrandbits(16))
        writers = SegmentWriters(
            self._gateway, router, lambda segment: transaction_segment_name(segment.name, made.transaction_id)
        )
        self._transactions[name] = _Transaction(member, writers)
        answer = self._register([member])
        failpoint(TRANSACTION_REGISTERED, self._identity.sink.destination)
        if answer.status is not RegisterStatus.REGISTERED:
            self._refused(answer)
            return
        self._members = (*self._members, member)
        if self._keeper is None:
            self._keeper = LeaseKeeper(lambda: self._register(self._members), answer.renewed_for_ms)
            self._keeper.start()

    def _register(self, members: Sequence[SetMember]) -> Registration:
        return self._gateway.register_transactions(BatchRegistration(self._identity, tuple(members)))

    def _lost(self, transaction: _Transaction, error: PravegaError) -> None:
        """A transaction segment took no bytes: ask what became of the transaction."""
        self._refused(self._register([transaction.member]), error)

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
            f"a transaction of partition {self._partition} of {self._identity} is not open any more "
            f"({answer.detail or cause}); the task must run again"
        ) from cause

    def _end(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        for transaction in self._transactions.values():
            transaction.writers.close()

    def _give_up(self) -> None:
        """Abort what was begun; if that fails too, its lease or the batch's commit ends it."""
        self._end()
        begun, self._transactions = self._transactions, {}
        for transaction in begun.values():
            abort_quietly(self._gateway, transaction.member)


def abort_quietly(gateway: StreamGateway, member: SetMember) -> None:
    """Abort a transaction that nobody needs; a failure is logged, the lease ends it anyway."""
    try:
        gateway.abort_transaction(member.scope, member.stream, member.transaction_id)
    except PravegaError as error:
        _log.info("transaction %s was not aborted, its lease will end it: %s", member.transaction_id, error)
