"""Converts values of the service CommitOperations to and from protobuf messages, for client and controller."""

from __future__ import annotations

from typing import Final

from pravega_common.model.commits import Obstacle, ObstacleKind
from pravega_common.model.transactions import TransactionState
from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import commit_operations_pb2 as commits_pb
from pravega_common.proto_forms import from_wire

WAITING_STATES: Final = {
    TransactionState.OPEN: commits_pb.WaitingTransaction.OPEN,
    TransactionState.COMMITTING: commits_pb.WaitingTransaction.COMMITTING,
    TransactionState.ABORTING: commits_pb.WaitingTransaction.ABORTING,
}
OBSTACLE_KINDS: Final = {
    ObstacleKind.LOST_TRANSACTION: commits_pb.Obstacle.LOST_TRANSACTION,
    ObstacleKind.STRAY_ENTRY: commits_pb.Obstacle.STRAY_ENTRY,
    ObstacleKind.SHORT_MERGE: commits_pb.Obstacle.SHORT_MERGE,
    ObstacleKind.LOST_SEGMENT: commits_pb.Obstacle.LOST_SEGMENT,
}


def obstacle_to(obstacle: Obstacle) -> commits_pb.Obstacle:
    """The message of an obstacle; both halves of the id are 0 for one without a transaction."""
    high, low = (0, 0) if obstacle.transaction is None else transaction_id_bits(obstacle.transaction)
    return commits_pb.Obstacle(
        kind=OBSTACLE_KINDS[obstacle.kind], detail=obstacle.detail, transaction_high=high, transaction_low=low
    )


def obstacle_from(message: commits_pb.Obstacle) -> Obstacle:
    """The obstacle of a message."""
    high, low = message.transaction_high, message.transaction_low
    transaction = transaction_id_from_bits(high, low) if high or low else None
    return Obstacle(from_wire(OBSTACLE_KINDS, message.kind), message.detail, transaction)
