"""Converts values of the API to and from protobuf messages, for client and controller."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, TypeVar

from pravega_common.errors import InvalidArgument
from pravega_common.model.commits import Obstacle, ObstacleKind
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.scope_quota import DescribedQuota, ScopeQuota, ScopeUse
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    SetMember,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import commit_operations_pb2 as commits_pb
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto import scope_quotas_pb2 as quotas_pb
from pravega_common.proto import transaction_sets_pb2 as sets_pb

N = TypeVar("N", bound=int)
V = TypeVar("V")

# ---- wire numbers ----------------------------------------------------------------------------------------------------

SCALE_TYPES: Final = {
    ScaleType.FIXED: pb.ScalingPolicy.FIXED_NUM_SEGMENTS,
    ScaleType.KILOBYTES_PER_SECOND: pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC,
    ScaleType.EVENTS_PER_SECOND: pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC,
}
RETENTION_TYPES: Final = {
    RetentionType.NONE: pb.RetentionPolicy.UNKNOWN,
    RetentionType.TIME: pb.RetentionPolicy.TIME,
    RetentionType.SIZE: pb.RetentionPolicy.SIZE,
}
TRANSACTION_STATES: Final = {
    TransactionState.UNKNOWN: pb.TxnState.UNKNOWN,
    TransactionState.OPEN: pb.TxnState.OPEN,
    TransactionState.COMMITTING: pb.TxnState.COMMITTING,
    TransactionState.COMMITTED: pb.TxnState.COMMITTED,
    TransactionState.ABORTING: pb.TxnState.ABORTING,
    TransactionState.ABORTED: pb.TxnState.ABORTED,
}
PING_STATUSES: Final = {
    PingStatus.OK: pb.PingTxnStatus.OK,
    PingStatus.LEASE_TOO_LARGE: pb.PingTxnStatus.LEASE_TOO_LARGE,
    PingStatus.MAX_EXECUTION_TIME_EXCEEDED: pb.PingTxnStatus.MAX_EXECUTION_TIME_EXCEEDED,
    PingStatus.SCALE_GRACE_TIME_EXCEEDED: pb.PingTxnStatus.SCALE_GRACE_TIME_EXCEEDED,
    PingStatus.DISCONNECTED: pb.PingTxnStatus.DISCONNECTED,
    PingStatus.COMMITTED: pb.PingTxnStatus.COMMITTED,
    PingStatus.ABORTED: pb.PingTxnStatus.ABORTED,
    PingStatus.UNKNOWN: pb.PingTxnStatus.UNKNOWN,
}
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


def from_wire(numbers: Mapping[V, N], number: int) -> V:
    """The value of a wire number in one of the tables; ``InvalidArgument`` for a number that is not in it."""
    for value, known in numbers.items():
        if known == number:
            return value
    kind = type(next(iter(numbers))).__name__
    raise InvalidArgument(f"{kind} has no value for the number {number}; known are {sorted(numbers.values())}")


# ---- streams and segments --------------------------------------------------------------------------------------------


def stream_info(scope: str, stream: str) -> pb.StreamInfo:
    """The message that names a stream."""
    return pb.StreamInfo(scope=scope, stream=stream)


def segment_id_to(scope: str, stream: str, segment_id: int) -> pb.SegmentId:
    """The message that names a segment."""
    return pb.SegmentId(streamInfo=stream_info(scope, stream), segmentId=segment_id)


def range_from(message: pb.SegmentRange) -> SegmentRange:
    """The segment of a message."""
    info = message.segmentId.streamInfo
    return SegmentRange(info.scope, info.stream, message.segmentId.segmentId, message.minKey, message.maxKey)


def configuration_to(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    """The message of a stream's configuration; one without retention has no retention policy in it."""
    scaling, retention = configuration.scaling, configuration.retention
    message = pb.StreamConfig(
        streamInfo=stream_info(scope, stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=SCALE_TYPES[scaling.scale_type],
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.min_segments,
        ),
        tags=pb.Tags(tag=configuration.tags),
        timestampAggregationTimeout=configuration.timestamp_aggregation_timeout_ms,
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )
    if retention is not None:
        message.retentionPolicy.CopyFrom(
            pb.RetentionPolicy(
                retentionType=RETENTION_TYPES[retention.retention_type],
                retentionParam=retention.minimum,
                retentionMax=retention.maximum,
            )
        )
    return message


def configuration_from(message: pb.StreamConfig) -> StreamConfiguration:
    """The configuration of a message; ``InvalidArgument`` for unknown policies."""
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    retention_type = from_wire(RETENTION_TYPES, retention.retentionType)
    return StreamConfiguration(
        ScalingPolicy(
            from_wire(SCALE_TYPES, scaling.scaleType),
            scaling.targetRate,
            scaling.scaleFactor,
            scaling.minNumSegments,
        ),
        # Some clients send a policy of no type when they want no retention.
        None
        if retention_type is RetentionType.NONE
        else RetentionPolicy(retention_type, retention.retentionParam, retention.retentionMax),
        tuple(message.tags.tag),
        message.timestampAggregationTimeout,
        message.rolloverSizeBytes,
    )


# ---- transactions ----------------------------------------------------------------------------------------------------


def transaction_to(transaction_id: uuid.UUID) -> pb.TxnId:
    """The message of a transaction's id."""
    high, low = transaction_id_bits(transaction_id)
    return pb.TxnId(highBits=high, lowBits=low)


def transaction_from(message: pb.TxnId) -> uuid.UUID:
    """The transaction's id in a message."""
    return transaction_id_from_bits(message.highBits, message.lowBits)


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


# ---- transaction sets ------------------------------------------------------------------------------------------------


def quota_to(quota: ScopeQuota) -> quotas_pb.ScopeLimits:
    return quotas_pb.ScopeLimits(
        streams=quota.streams, segments=quota.segments, bytes_in=quota.bytes_in, bytes_out=quota.bytes_out
    )


def quota_from(message: quotas_pb.ScopeLimits) -> ScopeQuota:
    """``InvalidArgument`` for a limit out of range."""
    return ScopeQuota(
        streams=message.streams if message.HasField("streams") else None,
        segments=message.segments if message.HasField("segments") else None,
        bytes_in=message.bytes_in if message.HasField("bytes_in") else None,
        bytes_out=message.bytes_out if message.HasField("bytes_out") else None,
    )


def described_quota_to(described: DescribedQuota) -> quotas_pb.GetScopeQuotaResponse:
    return quotas_pb.GetScopeQuotaResponse(
        limits=quota_to(described.quota),
        counted=described.is_counted,
        streams=described.use.streams,
        segments=described.use.segments,
    )


def described_quota_from(message: quotas_pb.GetScopeQuotaResponse) -> DescribedQuota:
    use = ScopeUse(message.streams, message.segments)
    return DescribedQuota(quota_from(message.limits), use, message.counted)


def sink_to(sink: Sink) -> sets_pb.Sink:
    """The message of a sink's name and secret, for requests."""
    return sets_pb.Sink(query_id=sink.query_id, destination=sink.destination, secret=sink.secret)


def sink_from(message: sets_pb.Sink) -> Sink:
    """The sink in a message; that of an answer has no secret."""
    return Sink(message.query_id, message.destination, message.secret)


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
