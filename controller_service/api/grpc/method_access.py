"""Declares what each call of the controller's gRPC services needs, as Pravega does (docs/security.md 4).

A call that is not in the table is refused: a new one says here what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.names import split_scoped_name, table_stream
from pravega_common.proto import controller_pb2 as pb
from pravega_common.resources import (
    ROOT,
    Permission,
    key_value_table_resource,
    reader_group_resource,
    scope_resource,
    stream_resource,
)

READ, UPDATE = Permission.READ, Permission.READ_UPDATE
Needs = Sequence[tuple[str, Permission]]
_WRITING: Final = (pb.StreamInfo.WRITE, pb.StreamInfo.READ_WRITE)


@dataclass(frozen=True, slots=True)
class MethodAccess:
    """``needs``: the resources that a request is about, and the permission on each; none for what every user may do.
    ``token_for``: scope and stream for which the answer carries a delegation token, or None. ``instead``: what it may
    be about as well, by the same name: these permissions will do, and the token is for both; none for most calls.
    ``is_of_root``: whether it is about the whole cluster."""

    needs: Callable[[Any], Needs]
    token_for: Callable[[Any], tuple[str, str] | None] = lambda request: None
    instead: Callable[[Any], Needs] = lambda request: []
    is_of_root: bool = False


def _stream_of(request: Any) -> pb.StreamInfo:
    """The stream that a request is about, wherever its message has it."""
    if isinstance(request, pb.StreamInfo):
        return request
    for name, inner in (
        ("streamInfo", None),
        ("stream", None),
        ("position", "streamInfo"),
        ("streamCut", "streamInfo"),
    ):
        if name in request.DESCRIPTOR.fields_by_name:
            found = getattr(request, name)
            stream: pb.StreamInfo = found if inner is None else getattr(found, inner)
            return stream
    raise TypeError(f"{request.DESCRIPTOR.name} has no stream")


def _named(request: Any) -> tuple[str, str]:
    info = _stream_of(request)
    return info.scope, info.stream


def _of_stream(needed: Permission) -> MethodAccess:
    return MethodAccess(lambda request: [(stream_resource(*_named(request)), needed)])


def _with_token(request: Any) -> tuple[str, str] | None:
    return None if _stream_of(request).accessOperation == pb.StreamInfo.NONE else _named(request)


def _asked(info: pb.StreamInfo) -> Permission:
    """The permission for what a request says that it is going to do with the token, reading by default."""
    return UPDATE if info.accessOperation in _WRITING and not info.stream.startswith("_") else READ


def _of_stream_with_token(needed: Permission | None = None) -> MethodAccess:
    """``needed``: None for what the request asks for."""

    def needs(request: Any) -> Needs:
        info = _stream_of(request)
        return [(stream_resource(info.scope, info.stream), _asked(info) if needed is None else needed)]

    return MethodAccess(needs, _with_token)


def _table_of_that_name(request: pb.StreamInfo) -> Needs:
    """Java's key-value tables ask for their token by the name of the table, as if it were a stream's. Names with a
    ``_`` are no table's."""
    if not request.stream or "_" in request.stream:
        return []
    return [(key_value_table_resource(request.scope, request.stream), _asked(request))]


def _of_token_alone() -> MethodAccess:
    """Asked about no stream, it is the question of a client whether a controller that is silent answers at all. To
    refuse it would count against the caller's host, and the answer to a refusal may be held for longer than the client
    waits."""
    asked = _of_stream_with_token()

    def needs(request: pb.StreamInfo) -> Needs:
        return asked.needs(request) if request.scope or request.stream else []

    return MethodAccess(needs, asked.token_for, _table_of_that_name)


def _of_root(needed: Permission) -> MethodAccess:
    return MethodAccess(lambda request: [(ROOT, needed)], is_of_root=True)


def _of_scope(scope: Callable[[Any], str], needed: Permission) -> MethodAccess:
    return MethodAccess(lambda request: [(scope_resource(scope(request)), needed)])


def _of_table(needed: Permission) -> MethodAccess:
    return MethodAccess(lambda request: [(key_value_table_resource(request.scope, request.kvtName), needed)])


def _of_group(field: str, needed: Permission) -> MethodAccess:
    return MethodAccess(lambda request: [(reader_group_resource(request.scope, getattr(request, field)), needed)])


def _group_and_streams(request: pb.ReaderGroupConfiguration) -> Needs:
    """The group is changed, and what it reads must be readable."""
    cuts = (*request.startingStreamCuts, *request.endingStreamCuts)
    streams = {(cut.streamInfo.scope, cut.streamInfo.stream) for cut in cuts}
    return [
        (reader_group_resource(request.scope, request.readerGroupName), UPDATE),
        *((stream_resource(scope, stream), READ) for scope, stream in sorted(streams)),
    ]


def _sink_and_members(request: Any) -> Needs:
    """The destination of the sink, and every stream that a batch writes to."""
    scope, stream = split_scoped_name(request.sink.destination)
    destination = scope_resource(scope) if stream == "*" else stream_resource(scope, stream)
    members = {(member.scope, member.stream) for member in getattr(request, "members", ())}
    return [(destination, UPDATE), *((stream_resource(*member), UPDATE) for member in sorted(members))]


def _streams_of_page(request: Any) -> Needs:
    return [(stream_resource(*name), READ) for name in sorted({(one.scope, one.stream) for one in request.streams})]


_NOTHING: Final = MethodAccess(lambda request: [])
_CONTROLLER: Final[Mapping[str, MethodAccess]] = {
    "getControllerServerList": _NOTHING,
    "getControllerToBucketMapping": _of_root(READ),
    "createScope": _of_root(UPDATE),
    "deleteScope": _of_root(UPDATE),
    "deleteScopeRecursive": _of_root(UPDATE),
    # Lists show what the caller may read.
    "listScopes": _NOTHING,
    "checkScopeExists": _of_scope(lambda request: str(request.scope), READ),
    "listStreamsInScope": _of_scope(lambda request: str(request.scope.scope), READ),
    "listStreamsInScopeForTag": _of_scope(lambda request: str(request.scope.scope), READ),
    "createStream": _of_scope(lambda request: str(request.streamInfo.scope), UPDATE),
    "updateStream": _of_stream(UPDATE),
    "truncateStream": _of_stream(UPDATE),
    "sealStream": _of_stream(UPDATE),
    "deleteStream": _of_stream(UPDATE),
    "getStreamConfiguration": _of_stream(READ),
    "checkStreamExists": _of_stream(READ),
    "getCurrentSegments": _of_stream_with_token(),
    "getEpochSegments": _of_stream_with_token(READ),
    "getSegments": _of_stream_with_token(),
    "getSegmentsImmediatlyFollowing": _of_stream_with_token(READ),
    "getSegmentsImmediatelyFollowing": _of_stream_with_token(READ),
    "getSegmentsBetween": _of_stream_with_token(READ),
    "getURI": _of_stream(READ),
    "isSegmentValid": _of_stream(READ),
    "isStreamCutValid": _of_stream(READ),
    "scale": _of_stream(UPDATE),
    "checkScale": _of_stream(READ),
    "createTransaction": _of_stream_with_token(UPDATE),
    "commitTransaction": _of_stream(UPDATE),
    "abortTransaction": _of_stream(UPDATE),
    "pingTransaction": _of_stream(UPDATE),
    "checkTransactionState": _of_stream(READ),
    "listCompletedTransactions": _of_stream(READ),
    "noteTimestampFromWriter": _of_stream(UPDATE),
    "removeWriter": _of_stream(UPDATE),
    "getDelegationToken": _of_token_alone(),
    "createKeyValueTable": _of_scope(lambda request: str(request.scope), UPDATE),
    "deleteKeyValueTable": _of_table(UPDATE),
    "getKeyValueTableConfiguration": _of_table(READ),
    "getCurrentSegmentsKeyValueTable": MethodAccess(
        lambda request: [(key_value_table_resource(request.scope, request.kvtName), READ)],
        lambda request: (request.scope, table_stream(request.kvtName)),
    ),
    "listKeyValueTablesInScope": _of_scope(lambda request: str(request.scope.scope), READ),
    "createReaderGroup": MethodAccess(_group_and_streams),
    "updateReaderGroup": MethodAccess(_group_and_streams),
    "getReaderGroupConfig": _of_group("readerGroup", READ),
    "deleteReaderGroup": _of_group("readerGroup", UPDATE),
    "listSubscribers": _of_stream(READ),
    "updateSubscriberStreamCut": _of_stream(READ),
}
_TRANSACTION_SETS: Final[Mapping[str, MethodAccess]] = {
    "RegisterTransactions": MethodAccess(_sink_and_members),
    "CommitTransactionSet": MethodAccess(_sink_and_members),
    "GetTransactionSet": MethodAccess(_sink_and_members),
    "ListSinks": _of_root(READ),
    "ForgetSink": _of_root(UPDATE),  # an operator's call
}
_COMMIT_OPERATIONS: Final[Mapping[str, MethodAccess]] = {
    "DescribeCommits": MethodAccess(lambda request: [(stream_resource(request.scope, request.stream), READ)]),
    "ListBlockedStreams": _of_root(READ),
    # They decide about data of others: the operators' calls.
    "GiveUpTransaction": _of_root(UPDATE),
    "AcceptLoss": _of_root(UPDATE),
}
_SCOPE_QUOTAS: Final[Mapping[str, MethodAccess]] = {
    "SetScopeQuota": _of_root(UPDATE),  # an operator's call
    "GetScopeQuota": _of_scope(lambda request: str(request.scope), READ),
}
_CLUSTER_HEALTH: Final[Mapping[str, MethodAccess]] = {"DescribeCluster": _of_root(READ)}
_STREAM_LAGS: Final[Mapping[str, MethodAccess]] = {"DescribeLags": MethodAccess(_streams_of_page)}
METHODS: Final[Mapping[str, MethodAccess]] = {
    f"/{service}/{method}": access
    for service, table in (
        ("io.pravega.controller.stream.api.grpc.v1.ControllerService", _CONTROLLER),
        ("pravega_spark.controller.v1.TransactionSets", _TRANSACTION_SETS),
        ("pravega_spark.controller.v1.CommitOperations", _COMMIT_OPERATIONS),
        ("pravega_spark.controller.v1.ScopeQuotas", _SCOPE_QUOTAS),
        ("pravega_spark.controller.v1.ClusterHealth", _CLUSTER_HEALTH),
        ("pravega_spark.controller.v1.StreamLags", _STREAM_LAGS),
    )
    for method, access in table.items()
}
"""By the path of the call."""
_PROBE: Final = "getControllerServerList"
"""Clients ask it to find out whether a controller answers at all."""
OPERATORS_METHODS: Final = frozenset(
    path for path, access in METHODS.items() if access.is_of_root or path.endswith("/" + _PROBE)
)
"""Calls that keep some room when others fill a controller."""
