"""Converts values of the service TransactionSets to and from protobuf messages, for client and controller."""

from __future__ import annotations

from typing import Final

from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    SetMember,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import transaction_sets_pb2 as sets_pb
from pravega_common.proto_forms import from_wire

SET_STATES: Final = {
    SetState.NONE: sets_pb.TransactionSet.NONE,
    SetState.PENDING: sets_pb.TransactionSet.PENDING,
    SetState.COMMITTED: sets_pb.TransactionSet.COMMITTED,
    SetState.FINISHED: sets_pb.TransactionSet.FINISHED,
    SetState.REFUSED: sets_pb.TransactionSet.REFUSED,
}
REGISTER_STATUSES: Final = {
    RegisterStatus.REGISTERED: sets_pb.RegisterTransactionsResponse.REGISTERED,
    RegisterStatus.BATCH_DECIDED: sets_pb.RegisterTransactionsResponse.BATCH_DECIDED,
    RegisterStatus.FENCED: sets_pb.RegisterTransactionsResponse.FENCED,
    RegisterStatus.TRANSACTION_NOT_OPEN: sets_pb.RegisterTransactionsResponse.TRANSACTION_NOT_OPEN,
}
COMMIT_STATUSES: Final = {
    CommitStatus.COMMITTED: sets_pb.CommitTransactionSetResponse.COMMITTED,
    CommitStatus.ALREADY_COMMITTED: sets_pb.CommitTransactionSetResponse.ALREADY_COMMITTED,
    CommitStatus.REPLAY_DIFFERS: sets_pb.CommitTransactionSetResponse.REPLAY_DIFFERS,
    CommitStatus.CHECKPOINT_BEHIND_SINK: sets_pb.CommitTransactionSetResponse.CHECKPOINT_BEHIND_SINK,
    CommitStatus.FENCED: sets_pb.CommitTransactionSetResponse.FENCED,
    CommitStatus.REFUSED: sets_pb.CommitTransactionSetResponse.REFUSED,
}


def sink_to(sink: Sink) -> sets_pb.Sink:
    """The message of a sink's name, secret and label, for requests."""
    return sets_pb.Sink(query_id=sink.query_id, destination=sink.destination, secret=sink.secret, label=sink.label)


def sink_from(message: sets_pb.Sink) -> Sink:
    """The sink in a message; that of an answer has no secret."""
    return Sink(message.query_id, message.destination, message.secret, message.label)


def member_to(member: SetMember) -> sets_pb.Member:
    """The message of a set's member."""
    high, low = transaction_id_bits(member.transaction_id)
    return sets_pb.Member(
        scope=member.scope,
        stream=member.stream,
        transaction_high=high,
        transaction_low=low,
        partition=member.partition,
        events=member.events,
        bytes=member.bytes,
    )


def member_from(message: sets_pb.Member) -> SetMember:
    """The member of a message."""
    transaction_id = transaction_id_from_bits(message.transaction_high, message.transaction_low)
    return SetMember(message.scope, message.stream, transaction_id, message.partition, message.events, message.bytes)


def set_from(message: sets_pb.TransactionSet) -> TransactionSet:
    """The transaction set of a message."""
    return TransactionSet(
        from_wire(SET_STATES, message.state),
        message.batch_id,
        message.run_id,
        tuple(member_from(item) for item in message.members),
        message.events,
        message.bytes,
    )
