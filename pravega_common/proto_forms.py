"""Converts values of the controller API to and from protobuf messages, for client and controller.

Those of our own services are beside it: a process imports the messages of the services that it calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, TypeVar

from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.names import transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import controller_pb2 as pb

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


def from_wire(numbers: Mapping[V, N], number: int) -> V:
    """The value of a wire number in one of the tables; ``InvalidArgument`` for a number that is not in it."""
    for value, known in numbers.items():
        if known == number:
            return value
    kind = type(next(iter(numbers))).__name__
    raise InvalidArgument(f"{kind} has no value for the number {number}; known are {sorted(numbers.values())}")


# ---- times -----------------------------------------------------------------------------------------------------------

cluster_time_key: Final = "pravega-time-ms"
"""The key of the cluster's time, milliseconds since 1970 in decimal, in the metadata behind the list of controllers."""


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
