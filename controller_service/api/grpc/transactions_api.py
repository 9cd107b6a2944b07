"""Serves the calls about transactions (docs/controller-api.md 2.4 and 4)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol

from controller_service.api.grpc.messages import checked_stream, segment_range
from controller_service.api.grpc.parts import ApiParts
from controller_service.transactions.lifecycle import CreatedTransaction
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import PING_STATUSES, TRANSACTION_STATES, transaction_from, transaction_to

NO_TIMESTAMP: Final = -(1 << 63)
"""What clients send when a commit has no time; some send 0."""


class Transactions(Protocol):
    """The transaction service, as the API uses it."""

    async def create(self, scope: str, stream: str, lease_ms: int) -> CreatedTransaction: ...

    async def ping(self, scope: str, stream: str, identifier: uuid.UUID, lease_ms: int) -> PingStatus: ...

    async def commit(
        self, scope: str, stream: str, identifier: uuid.UUID, writer_id: str = "", commit_time_ms: int | None = None
    ) -> bool: ...

    async def abort(self, scope: str, stream: str, identifier: uuid.UUID) -> bool: ...

    async def transaction_state(self, scope: str, stream: str, identifier: uuid.UUID) -> TransactionState: ...

    async def list_completed(self, scope: str, stream: str) -> Sequence[tuple[uuid.UUID, TransactionState]]: ...


class TransactionsApi:
    parts: ApiParts
    transactions: Transactions

    async def createTransaction(self, request: pb.CreateTxnRequest, context: Any) -> pb.CreateTxnResponse:
        scope, stream = checked_stream(request.streamInfo)
        created = await self.transactions.create(scope, stream, request.lease)
        return pb.CreateTxnResponse(
            txnId=transaction_to(created.id),
            activeSegments=[segment_range(scope, stream, segment) for segment in created.segments],
        )

    async def pingTransaction(self, request: pb.PingTxnRequest, context: Any) -> pb.PingTxnStatus:
        scope, stream = checked_stream(request.streamInfo)
        status = await self.transactions.ping(scope, stream, transaction_from(request.txnId), request.lease)
        return pb.PingTxnStatus(status=PING_STATUSES[status])

    async def commitTransaction(self, request: pb.TxnRequest, context: Any) -> pb.TxnStatus:
        scope, stream = checked_stream(request.streamInfo)
        time_ms = None if request.timestamp == NO_TIMESTAMP else request.timestamp
        done = await self.transactions.commit(scope, stream, transaction_from(request.txnId), request.writerId, time_ms)
        return pb.TxnStatus(status=pb.TxnStatus.SUCCESS if done else pb.TxnStatus.FAILURE)

    async def abortTransaction(self, request: pb.TxnRequest, context: Any) -> pb.TxnStatus:
        scope, stream = checked_stream(request.streamInfo)
        done = await self.transactions.abort(scope, stream, transaction_from(request.txnId))
        return pb.TxnStatus(status=pb.TxnStatus.SUCCESS if done else pb.TxnStatus.FAILURE)

    async def checkTransactionState(self, request: pb.TxnRequest, context: Any) -> pb.TxnState:
        scope, stream = checked_stream(request.streamInfo)
        state = await self.transactions.transaction_state(scope, stream, transaction_from(request.txnId))
        return pb.TxnState(state=TRANSACTION_STATES[state])

    async def listCompletedTransactions(
        self, request: pb.ListCompletedTxnRequest, context: Any
    ) -> pb.ListCompletedTxnResponse:
        scope, stream = checked_stream(request.streamInfo)
        completed = await self.transactions.list_completed(scope, stream)
        return pb.ListCompletedTxnResponse(
            response=[
                pb.TxnResponse(
                    txnId=transaction_to(identifier),
                    status=pb.TxnResponse.COMMITTED if state is TransactionState.COMMITTED else pb.TxnResponse.ABORTED,
                )
                for identifier, state in completed
            ]
        )
