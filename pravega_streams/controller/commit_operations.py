"""Shows operators the commit order of a stream, its obstacles and the ways out (commit_operations.proto)."""

from __future__ import annotations

import uuid

from pravega_common.commit_forms import WAITING_STATES, obstacle_from
from pravega_common.model.commits import Commits, Obstacle, WaitingTransaction
from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import commit_operations_pb2 as pb
from pravega_common.proto_forms import from_wire
from pravega_streams.controller.transport import ControllerTransport


class CommitOperationsClient:
    """Blocking calls; each may be repeated. ``UnsupportedOperation`` on a plain Pravega, ``NotFound``."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def describe(self, scope: str, stream: str, transactions_max: int = 0) -> Commits:
        """``transactions_max``: how many of the active transactions to list, the oldest first; at most 1000."""
        request = pb.DescribeCommitsRequest(scope=scope, stream=stream, transactions_max=transactions_max)
        reply = self._transport.commit_operations("DescribeCommits", request)
        listed = tuple(
            WaitingTransaction(
                transaction_id_from_bits(item.transaction_high, item.transaction_low),
                from_wire(WAITING_STATES, item.state),
                item.created_ms,
                item.merging,
            )
            for item in reply.transactions
        )
        return Commits(reply.waiting, reply.merging, tuple(map(obstacle_from, reply.obstacles)), listed)

    def blocked_streams(self) -> list[tuple[str, str, tuple[Obstacle, ...]]]:
        """Scope, stream and obstacles of every stream whose commits cannot go on."""
        reply = self._transport.commit_operations("ListBlockedStreams", pb.ListBlockedStreamsRequest())
        return [(item.scope, item.stream, tuple(map(obstacle_from, item.obstacles))) for item in reply.streams]

    def give_up(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        """Abort a transaction that lost data. ``InvalidArgument`` for one that is no obstacle."""
        high, low = transaction_id_bits(transaction_id)
        request = pb.GiveUpTransactionRequest(scope=scope, stream=stream, transaction_high=high, transaction_low=low)
        self._transport.commit_operations("GiveUpTransaction", request)

    def accept_loss(self, scope: str, stream: str) -> None:
        """Let a round that lost bytes end with what is there. ``InvalidArgument`` unless that is the obstacle."""
        self._transport.commit_operations("AcceptLoss", pb.AcceptLossRequest(scope=scope, stream=stream))
