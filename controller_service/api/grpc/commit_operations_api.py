"""Serves the gRPC service ``CommitOperations``."""

from __future__ import annotations

import uuid
from typing import Any, Final

import grpc.aio

from controller_service.repair.commit_repair import CommitRepair
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common import names
from pravega_common.commit_forms import WAITING_STATES, obstacle_to
from pravega_common.errors import InvalidArgument
from pravega_common.proto import commit_operations_pb2 as pb
from pravega_common.proto import commit_operations_pb2_grpc as pb_grpc

transactions_listed_max: Final = 1_000


class CommitOperationsApi(pb_grpc.CommitOperationsServicer):
    """Errors are left to the server's error mapping."""

    def __init__(self, repair: CommitRepair, records: TransactionStore) -> None:
        self._repair = repair
        self._records = records

    async def DescribeCommits(
        self, request: pb.DescribeCommitsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DescribeCommitsResponse:
        if not 0 <= request.transactions_max <= transactions_listed_max:
            raise InvalidArgument(
                f"{request.transactions_max} transactions cannot be listed; 0 to {transactions_listed_max} can"
            )
        commits = await self._repair.look(request.scope, request.stream)
        merging = set(commits.state.committing.ids)
        listed = await self._listed(request, merging) if request.transactions_max else []
        return pb.DescribeCommitsResponse(
            waiting=commits.state.queue.count,
            merging=len(merging),
            obstacles=[obstacle_to(one) for one in commits.obstacles],
            transactions=listed,
        )

    async def _listed(self, request: pb.DescribeCommitsRequest, merging: set[uuid.UUID]) -> list[pb.WaitingTransaction]:
        active = await self._records.active(request.scope, request.stream)
        active.sort(key=lambda item: item[1].record.created_ms)
        listed = []
        for identifier, found in active[: request.transactions_max]:
            high, low = names.transaction_id_bits(identifier)
            listed.append(
                pb.WaitingTransaction(
                    transaction_high=high,
                    transaction_low=low,
                    state=WAITING_STATES[found.record.state],
                    created_ms=found.record.created_ms,
                    merging=identifier in merging,
                )
            )
        return listed

    async def ListBlockedStreams(
        self, request: pb.ListBlockedStreamsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ListBlockedStreamsResponse:
        blocked = await self._repair.blocked_streams()
        streams = [
            pb.BlockedStream(scope=scope, stream=stream, obstacles=[obstacle_to(one) for one in obstacles])
            for scope, stream, obstacles in blocked
        ]
        return pb.ListBlockedStreamsResponse(streams=streams)

    async def GiveUpTransaction(
        self, request: pb.GiveUpTransactionRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GiveUpTransactionResponse:
        identifier = names.transaction_id_from_bits(request.transaction_high, request.transaction_low)
        await self._repair.give_up(request.scope, request.stream, identifier)
        return pb.GiveUpTransactionResponse()

    async def AcceptLoss(
        self, request: pb.AcceptLossRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.AcceptLossResponse:
        await self._repair.accept_loss(request.scope, request.stream)
        return pb.AcceptLossResponse()
