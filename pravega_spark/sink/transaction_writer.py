"""Writes the rows of one task in transactions of its batch, one for each stream; runs on executors."""

from __future__ import annotations

import enum
import logging
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NoReturn

import pyarrow as pa

from pravega_common.errors import Fenced, PravegaError, SegmentError, SegmentNotFound, SegmentSealed
from pravega_common.model.transaction_sets import RegisterStatus, Registration, SetMember
from pravega_common.names import transaction_segment_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.provisioning import Provision, begun
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


class Phase(enum.Enum):
    """The phases of a ``TransactionWriter``."""

    WRITING = enum.auto()
    """Rows go into transactions, which are begun as streams appear."""
    COUNTING = enum.auto()
    """The batch is decided: rows are counted and written nowhere."""
    ENDED = enum.auto()
    """The task has its message, or failed; no lease is renewed any more."""


class _BatchDecided(Exception):
    """The answer to a registration: the batch is committed, and takes no more transactions."""


class OpenTransaction:
    """A transaction of one stream, bound to its batch, and its writers."""

    def __init__(self, member: SetMember, writers: SegmentWriters) -> None:
        self.member = member
        self.writers = writers
        self._tally = Tally()

    @property
    def segments(self) -> int:
        return len(self.writers.router.segments)

    def write(self, rows: StreamRows, columns: SinkColumns) -> None:
        self._tally.add(rows.lengths)
        router = self.writers.router
        positions = None
        if len(router.segments) > 1:
            positions = router.key_positions(columns.keys_of(rows.rows), rows.lengths)
        self.writers.write(columns.events_of(rows.rows), rows.lengths, positions)

    def counted(self) -> SetMember:
        """The member with what was written to it."""
        return replace(self.member, events=self._tally.events, bytes=self._tally.size_bytes)


class TransactionWriter:
    """A writer of one task's rows. It returns the message that says what it wrote, and commits nothing.

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
        provision: Provision | None = None,
    ) -> None:
        """``provision`` is called before a stream's transaction is begun."""
        self._gateway = gateway
        self._identity = identity
        self._destinations = destinations
        self._columns = columns
        self._partition = partition
        self._lease_ms = lease_ms
        self._provision = provision
        self._phase = Phase.WRITING
        self._transactions: dict[StreamName, OpenTransaction] = {}
        self._members: tuple[SetMember, ...] = ()
        """Replaced as a whole: the keeper's thread reads it."""
        self._keeper = LeaseKeeper(lambda: self._register(self._members))

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """Raises ``InvalidArgument`` for null or too large events and bad destinations, ``Fenced``,
        ``TransactionFailed``.
        """
        tally = Tally()
        # Before the first row, which may be long in coming: the transactions of other tasks stay open by these calls.
        self._keeper.start()
        try:
            for batch in batches:
                if batch.num_rows:
                    lengths = event_lengths(self._columns.events_of(batch))
                    for rows in self._destinations.split(batch, self._columns, lengths):
                        self._write(rows)
                    tally.add(lengths)
            failpoint(ROWS_WRITTEN, self._identity.sink.destination)
            self._flush()
            failpoint(ROWS_DURABLE, self._identity.sink.destination)
        except BaseException:
            self._abort()
            raise
        self._end()
        return self._message(tally)

    def _message(self, tally: Tally) -> TaskMessage:
        written = self._transactions.values()
        return TaskMessage(
            self._identity,
            self._partition,
            tally.events,
            tally.size_bytes,
            tuple(transaction.counted() for transaction in written),
            sum(transaction.segments for transaction in written),
        )

    # Writing

    def _write(self, rows: StreamRows) -> None:
        if self._phase is not Phase.WRITING:
            return
        try:
            if self._keeper.refusal is not None:
                self._check_registered(self._keeper.refusal)
            transaction = self._transactions.get(rows.stream) or self._begin(rows.stream)
            try:
                transaction.write(rows, self._columns)
            except (SegmentNotFound, SegmentSealed) as error:
                self._raise_fate(transaction, error)
        except _BatchDecided:
            self._count_from_now_on()

    def _flush(self) -> None:
        """All streams are sent to before the first is waited for."""
        if self._phase is not Phase.WRITING:
            return
        try:
            for step in (SegmentWriters.start_flush, SegmentWriters.flush):
                for transaction in self._transactions.values():
                    try:
                        step(transaction.writers)
                    except (SegmentNotFound, SegmentSealed) as error:
                        self._raise_fate(transaction, error)
        except _BatchDecided:
            self._count_from_now_on()

    def _begin(self, name: StreamName) -> OpenTransaction:
        """Begin a transaction and bind it to the batch before anything is written to it."""
        made = begun(name, self._provision, lambda: self._gateway.create_transaction(*name, self._lease_ms))
        failpoint(TRANSACTION_BEGUN, self._identity.sink.destination)
        member = SetMember(*name, made.transaction_id, self._partition)
        router = RowRouter(made.segments, random.getrandbits(16))
        writers = SegmentWriters(
            self._gateway, router, lambda segment: transaction_segment_name(segment.name, made.transaction_id)
        )
        # Known from here on, so that a failed task aborts it.
        transaction = self._transactions[name] = OpenTransaction(member, writers)
        answer = self._register((member,))
        failpoint(TRANSACTION_REGISTERED, self._identity.sink.destination)
        self._check_registered(answer)
        if not self._members:
            self._keeper.renew_within(answer.renewed_for_ms)
        self._members = (*self._members, member)
        return transaction

    # Registration

    def _register(self, members: tuple[SetMember, ...]) -> Registration:
        return self._gateway.register_transactions(BatchRegistration(self._identity, members))

    def _raise_fate(self, transaction: OpenTransaction, error: SegmentError) -> NoReturn:
        """A transaction segment took no bytes: ask what became of the transaction."""
        raise self._refused(self._register((transaction.member,)), error) from error

    def _check_registered(self, answer: Registration) -> None:
        if answer.status is not RegisterStatus.REGISTERED:
            raise self._refused(answer)

    def _refused(self, answer: Registration, cause: SegmentError | None = None) -> Exception:
        """The error of a transaction that may not be written to, or the sign that its batch is decided."""
        match answer.status:
            case RegisterStatus.BATCH_DECIDED:
                return _BatchDecided()
            case RegisterStatus.FENCED:
                return Fenced(
                    f"{self._identity} may not write, another run of this query does ({answer.detail}); "
                    "is its checkpoint used twice?"
                )
        return TransactionFailed(
            f"a transaction of partition {self._partition} of {self._identity} is not open any more "
            f"({answer.detail or cause}); the task must run again"
        )

    # Changes of phase

    def _count_from_now_on(self) -> None:
        self._abort()
        self._phase = Phase.COUNTING

    def _end(self) -> None:
        self._phase = Phase.ENDED
        self._keeper.stop()
        for transaction in self._transactions.values():
            transaction.writers.close()

    def _abort(self) -> None:
        """Abort what was begun; if that fails too, its lease or the batch's commit ends it."""
        self._end()
        begun, self._transactions = self._transactions, {}
        for transaction in begun.values():
            abort_quietly(self._gateway, transaction.member)


def abort_quietly(gateway: StreamGateway, member: SetMember) -> None:
    """Abort a transaction that nobody needs; a failure is logged, since the lease ends it too."""
    try:
        gateway.abort_transaction(member.scope, member.stream, member.transaction_id)
    except PravegaError as error:
        _log.info("transaction %s was not aborted, its lease will end it: %s", member.transaction_id, error)
