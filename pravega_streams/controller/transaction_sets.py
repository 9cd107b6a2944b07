"""Several transactions decided together: the client side of our controller's extension (transaction_sets.proto)."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import transaction_sets_pb2 as pb
from pravega_streams.controller.transport import ControllerTransport


@dataclass(frozen=True, slots=True)
class Sink:
    """A query (stable id) writing to one destination, ``scope/stream`` or ``scope/*``."""

    query_id: str
    destination: str


@dataclass(frozen=True, slots=True)
class SetMember:
    """One transaction of a batch, with what its task wrote to it."""

    scope: str
    stream: str
    transaction_id: uuid.UUID
    partition: int
    events: int = 0
    bytes: int = 0


class SetState(enum.IntEnum):
    NONE = 0
    PENDING = 1
    COMMITTED = 2
    """Decided; its members are being made readable."""
    FINISHED = 3
    REFUSED = 4


class RegisterStatus(enum.IntEnum):
    REGISTERED = 0
    BATCH_DECIDED = 1
    FENCED = 2
    TRANSACTION_NOT_OPEN = 3


class CommitStatus(enum.IntEnum):
    COMMITTED = 0
    ALREADY_COMMITTED = 1
    REPLAY_DIFFERS = 2
    CHECKPOINT_BEHIND_SINK = 3
    FENCED = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class TransactionSet:
    """What the controller has on record for a batch; ``events`` and ``bytes`` are the whole batch's."""

    state: SetState
    batch_id: int
    run_id: str
    members: tuple[SetMember, ...]
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Registration:
    """``renewed_for_ms``: register again well before this time is over."""

    status: RegisterStatus
    detail: str
    last_committed_batch_id: int
    renewed_for_ms: int


@dataclass(frozen=True, slots=True)
class SetDecision:
    status: CommitStatus
    detail: str
    recorded: TransactionSet


@dataclass(frozen=True, slots=True)
class SinkRecord:
    sink: Sink
    last_committed_batch_id: int
    run_id: str
    touched_ms: int
    last_set: TransactionSet


class TransactionSetClient:
    """Blocking calls; each may be repeated with the same arguments. ``UnsupportedOperation`` on a plain Pravega."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def register(self, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember]) -> Registration:
        """Bind transactions to their batch, and keep all of the batch's transactions open."""
        request = pb.RegisterTransactionsRequest(
            sink=_sink(sink), run_id=run_id, batch_id=batch_id, members=[_member(item) for item in members]
        )
        reply = self._transport.transaction_sets("RegisterTransactions", request)
        return Registration(
            RegisterStatus(reply.status), reply.detail, reply.last_committed_batch_id, reply.renewed_for_ms
        )

    def commit(
        self, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember], events: int, size_bytes: int
    ) -> SetDecision:
        """Decide a batch, whole or not at all. ``events`` and ``size_bytes`` are what the batch read and wrote."""
        request = pb.CommitTransactionSetRequest(
            sink=_sink(sink),
            run_id=run_id,
            batch_id=batch_id,
            members=[_member(item) for item in members],
            events=events,
            bytes=size_bytes,
        )
        reply = self._transport.transaction_sets("CommitTransactionSet", request)
        return SetDecision(CommitStatus(reply.status), reply.detail, _set_from(reply.set))

    def get(self, sink: Sink, batch_id: int) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id of the sink (-1 if none)."""
        reply = self._transport.transaction_sets(
            "GetTransactionSet", pb.GetTransactionSetRequest(sink=_sink(sink), batch_id=batch_id)
        )
        return _set_from(reply.set), reply.last_committed_batch_id

    def list_sinks(self) -> Iterator[SinkRecord]:
        continuation = ""
        while True:
            reply = self._transport.transaction_sets("ListSinks", pb.ListSinksRequest(continuation=continuation))
            for item in reply.sinks:
                sink = Sink(item.sink.query_id, item.sink.destination)
                last = _set_from(item.last_set)
                yield SinkRecord(sink, item.last_committed_batch_id, item.run_id, item.touched_ms, last)
            continuation = reply.continuation
            if not continuation:
                return


def _sink(sink: Sink) -> pb.Sink:
    return pb.Sink(query_id=sink.query_id, destination=sink.destination)


def _member(member: SetMember) -> pb.Member:
    high, low = transaction_id_bits(member.transaction_id)
    return pb.Member(
        scope=member.scope,
        stream=member.stream,
        transaction_high=high,
        transaction_low=low,
        partition=member.partition,
        events=member.events,
        bytes=member.bytes,
    )


def _member_from(message: pb.Member) -> SetMember:
    transaction_id = transaction_id_from_bits(message.transaction_high, message.transaction_low)
    return SetMember(message.scope, message.stream, transaction_id, message.partition, message.events, message.bytes)


def _set_from(message: pb.TransactionSet) -> TransactionSet:
    return TransactionSet(
        SetState(message.state),
        message.batch_id,
        message.run_id,
        tuple(_member_from(item) for item in message.members),
        message.events,
        message.bytes,
    )
