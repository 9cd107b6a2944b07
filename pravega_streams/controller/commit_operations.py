"""For operators: what waits for its commit, what keeps it from it, and the way out (commit_operations.proto)."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import commit_operations_pb2 as pb
from pravega_streams.controller.model import TransactionState
from pravega_streams.controller.transport import ControllerTransport


class ObstacleKind(enum.IntEnum):
    LOST_TRANSACTION = 0
    """A segment of it, or its record, is gone, and nothing of it was merged: it can be given up."""
    STRAY_ENTRY = 1
    """In the commit order, and neither committing nor committed: it can be given up."""
    SHORT_MERGE = 2
    """A round was begun, and bytes are missing: the loss can be accepted."""
    LOST_SEGMENT = 3
    """A segment, or a record, of the stream itself is gone."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """``transaction``: of the first two kinds."""

    kind: ObstacleKind
    detail: str
    transaction: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class ActiveTransaction:
    """Open, committing or aborting; ``is_merging``: in the round that is being merged."""

    transaction_id: uuid.UUID
    state: TransactionState
    created_ms: int
    is_merging: bool


@dataclass(frozen=True, slots=True)
class Commits:
    """``waiting``: transactions in the commit order, of which ``merging`` are in the round that is being merged."""

    waiting: int
    merging: int
    obstacles: tuple[Obstacle, ...]
    transactions: tuple[ActiveTransaction, ...]


_STATE: Final = {
    pb.WaitingTransaction.OPEN: TransactionState.OPEN,
    pb.WaitingTransaction.COMMITTING: TransactionState.COMMITTING,
    pb.WaitingTransaction.ABORTING: TransactionState.ABORTING,
}


class CommitOperationsClient:
    """Blocking calls; each may be repeated. ``UnsupportedOperation`` on a plain Pravega, ``NotFound``."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def describe(self, scope: str, stream: str, transactions_max: int = 0) -> Commits:
        """``transactions_max``: how many of the active transactions to list, the oldest first; at most 1000."""
        request = pb.DescribeCommitsRequest(scope=scope, stream=stream, transactions_max=transactions_max)
        reply = self._transport.commit_operations("DescribeCommits", request)
        listed = tuple(
            ActiveTransaction(
                transaction_id_from_bits(item.transaction_high, item.transaction_low),
                _STATE[item.state],
                item.created_ms,
                item.merging,
            )
            for item in reply.transactions
        )
        return Commits(reply.waiting, reply.merging, _obstacles(reply.obstacles), listed)

    def blocked_streams(self) -> list[tuple[str, str, tuple[Obstacle, ...]]]:
        """Scope, stream and obstacles of every stream whose commits cannot go on."""
        reply = self._transport.commit_operations("ListBlockedStreams", pb.ListBlockedStreamsRequest())
        return [(item.scope, item.stream, _obstacles(item.obstacles)) for item in reply.streams]

    def give_up(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        """Abort a transaction that lost data. ``InvalidArgument`` for one that is no obstacle."""
        high, low = transaction_id_bits(transaction_id)
        request = pb.GiveUpTransactionRequest(scope=scope, stream=stream, transaction_high=high, transaction_low=low)
        self._transport.commit_operations("GiveUpTransaction", request)

    def accept_loss(self, scope: str, stream: str) -> None:
        """Let a round that lost bytes end with what is there. ``InvalidArgument`` unless that is the obstacle."""
        self._transport.commit_operations("AcceptLoss", pb.AcceptLossRequest(scope=scope, stream=stream))


def _obstacles(messages: Iterable[pb.Obstacle]) -> tuple[Obstacle, ...]:
    return tuple(
        Obstacle(
            ObstacleKind(item.kind),
            item.detail,
            transaction_id_from_bits(item.transaction_high, item.transaction_low)
            if item.transaction_high or item.transaction_low
            else None,
        )
        for item in messages
    )
