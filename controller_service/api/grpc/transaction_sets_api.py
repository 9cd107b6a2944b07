"""Serves the gRPC service ``TransactionSets``."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from typing import Any, Final

import grpc.aio

from controller_service.api.grpc.messages import continuation_chars_max
from controller_service.sets.known_sinks import KnownSinks
from controller_service.sets.transaction_set import (
    MemberRecord,
    RefusedSet,
    SetRecord,
    SetRecordState,
    SinkRecord,
    Verdict,
)
from controller_service.sets.transaction_set_service import TransactionSetService
from pravega_common import names
from pravega_common.errors import InvalidArgument
from pravega_common.model.transaction_sets import SetMember
from pravega_common.proto import transaction_sets_pb2 as pb
from pravega_common.proto import transaction_sets_pb2_grpc as pb_grpc
from pravega_common.resources import ROOT
from pravega_common.services.security.principal import may_see
from pravega_common.set_forms import member_from, member_to

_REGISTER_STATUS: Final = {
    Verdict.REGISTERED: pb.RegisterTransactionsResponse.REGISTERED,
    Verdict.BATCH_DECIDED: pb.RegisterTransactionsResponse.BATCH_DECIDED,
    Verdict.FENCED: pb.RegisterTransactionsResponse.FENCED,
    Verdict.REFUSED: pb.RegisterTransactionsResponse.TRANSACTION_NOT_OPEN,
}
_COMMIT_STATUS: Final = {
    Verdict.COMMITTED: pb.CommitTransactionSetResponse.COMMITTED,
    Verdict.ALREADY_COMMITTED: pb.CommitTransactionSetResponse.ALREADY_COMMITTED,
    Verdict.REPLAY_DIFFERS: pb.CommitTransactionSetResponse.REPLAY_DIFFERS,
    Verdict.CHECKPOINT_BEHIND_SINK: pb.CommitTransactionSetResponse.CHECKPOINT_BEHIND_SINK,
    Verdict.FENCED: pb.CommitTransactionSetResponse.FENCED,
    Verdict.REFUSED: pb.CommitTransactionSetResponse.REFUSED,
}
_SET_STATE: Final = {
    SetRecordState.PENDING: pb.TransactionSet.PENDING,
    SetRecordState.COMMITTED: pb.TransactionSet.COMMITTED,
    SetRecordState.ORDERED: pb.TransactionSet.COMMITTED,
    SetRecordState.FINISHED: pb.TransactionSet.FINISHED,
}


class TransactionSetsApi(pb_grpc.TransactionSetsServicer):
    """Errors are left to the server's error mapping. After one that says nothing certain, the same call finds out."""

    def __init__(self, sets: TransactionSetService, known: KnownSinks) -> None:
        self._sets = sets
        self._known = known

    async def RegisterTransactions(
        self, request: pb.RegisterTransactionsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RegisterTransactionsResponse:
        taken = await self._sets.register(
            request.sink.query_id,
            request.sink.destination,
            request.run_id,
            request.batch_id,
            _members(request.members),
            request.sink.secret,
        )
        self._known.heard_of(request.sink.query_id, request.sink.destination)
        return pb.RegisterTransactionsResponse(
            status=_REGISTER_STATUS[taken.verdict],
            detail=taken.detail,
            last_committed_batch_id=taken.last_batch_id,
            renewed_for_ms=taken.renewed_for_ms,
        )

    async def CommitTransactionSet(
        self, request: pb.CommitTransactionSetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CommitTransactionSetResponse:
        taken = await self._sets.commit(
            request.sink.query_id,
            request.sink.destination,
            request.run_id,
            request.batch_id,
            _members(request.members),
            request.events,
            request.bytes,
            request.sink.secret,
            request.sink.label,
        )
        self._known.heard_of(request.sink.query_id, request.sink.destination)
        recorded = _set(taken.set)
        if taken.verdict is Verdict.REFUSED:
            recorded.state = pb.TransactionSet.REFUSED
        return pb.CommitTransactionSetResponse(status=_COMMIT_STATUS[taken.verdict], detail=taken.detail, set=recorded)

    async def GetTransactionSet(
        self, request: pb.GetTransactionSetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetTransactionSetResponse:
        sink = request.sink
        taken = await self._sets.get(
            sink.query_id,
            sink.destination,
            request.batch_id,
            sink.secret,
            is_operator=may_see(ROOT),
            wait_ms=request.wait_ms,
        )
        decided = taken.decision
        if isinstance(decided, RefusedSet):
            message = pb.TransactionSet(
                state=pb.TransactionSet.REFUSED, batch_id=decided.batch_id, run_id=decided.run_id
            )
        else:
            message = _set(decided)
        return pb.GetTransactionSetResponse(set=message, last_committed_batch_id=taken.last_batch_id)

    async def ListSinks(
        self, request: pb.ListSinksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ListSinksResponse:
        records, token = await self._sets.list_sinks(_token(request.continuation))
        continuation = base64.urlsafe_b64encode(token).decode()
        return pb.ListSinksResponse(sinks=[_sink(record) for record in records], continuation=continuation)

    async def ForgetSink(
        self, request: pb.ForgetSinkRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ForgetSinkResponse:
        sink = request.sink
        await self._sets.forget(sink.query_id, sink.destination, secret_only=request.secret_only)
        return pb.ForgetSinkResponse()


def _token(continuation: str) -> bytes:
    if len(continuation) > continuation_chars_max:
        raise InvalidArgument(f"continuation of {len(continuation)} characters, at most {continuation_chars_max}")
    try:
        return base64.b64decode(continuation, altchars=b"-_", validate=True)
    except ValueError as error:
        raise InvalidArgument(f"continuation {continuation[:40]!r} is not one that this service gave out") from error


def _members(messages: Iterable[pb.Member]) -> list[MemberRecord]:
    members = map(member_from, messages)
    return [
        MemberRecord(
            names.scoped_name(member.scope, member.stream),
            member.transaction_id.hex,
            member.partition,
            member.events,
            member.bytes,
        )
        for member in members
    ]


def _member(record: MemberRecord) -> pb.Member:
    scope, stream = names.split_scoped_name(record.stream)
    identifier = uuid.UUID(hex=record.transaction)
    return member_to(SetMember(scope, stream, identifier, record.partition, record.events, record.bytes))


def _set(record: SetRecord | None) -> pb.TransactionSet:
    if record is None:
        return pb.TransactionSet(state=pb.TransactionSet.NONE)
    return pb.TransactionSet(
        state=_SET_STATE[record.state],
        batch_id=record.batch_id,
        run_id=record.run_id,
        members=[_member(member) for member in record.members],
        events=record.events,
        bytes=record.bytes,
    )


def _sink(record: SinkRecord) -> pb.SinkRecord:
    return pb.SinkRecord(
        sink=pb.Sink(query_id=record.query_id, destination=record.destination, label=record.label),
        last_committed_batch_id=record.last_batch_id,
        run_id=record.runs[-1] if record.runs else "",
        touched_ms=record.touched_ms,
        last_set=_set(record.last),
    )
