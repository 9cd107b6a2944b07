"""Values of the controller's API, and their wire forms."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import Final

from pravega_common.key_range import KeyRange
from pravega_common.names import segment_name, transaction_id_bits, transaction_id_from_bits
from pravega_common.proto import controller_pb2 as pb

scaling_number_max: Final = 2**31 - 1
"""What the controller's messages hold of a scaling policy's numbers; a rate in bytes is counted in units of 1024."""


class ScaleType(enum.IntEnum):
    """Numbers as on the wire."""

    FIXED = 0
    KILOBYTES_PER_SECOND = 1
    EVENTS_PER_SECOND = 2


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """``target_rate`` is per segment, in the unit of ``scale_type``; rate and factor are 0 for a fixed stream."""

    segments_min: int = 1
    scale_type: ScaleType = ScaleType.FIXED
    target_rate: int = 0
    scale_factor: int = 0


class RetentionType(enum.IntEnum):
    NONE = 0
    TIME = 1
    SIZE = 2


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What to keep at least and at most: milliseconds for ``TIME``, bytes for ``SIZE``."""

    retention_type: RetentionType = RetentionType.NONE
    keep_min: int = 0
    keep_max: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    tags: tuple[str, ...] = ()
    rollover_size_bytes: int = 0
    timestamp_aggregation_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment of a stream and the keys that it takes: positions in [key_low, key_high) of [0, 1)."""

    scope: str
    stream: str
    segment_id: int
    key_low: float
    key_high: float

    @property
    def name(self) -> str:
        """The qualified name, ``scope/stream/number.#epoch.epoch``."""
        return segment_name(self.scope, self.stream, self.segment_id)

    @property
    def key_range(self) -> KeyRange:
        """Its keys; an upper edge that is past 1 by a rounding error is 1."""
        return KeyRange(self.key_low, min(self.key_high, 1.0))


@dataclass(frozen=True, slots=True)
class Successor:
    """A segment that follows a sealed one; it may be read once all of ``predecessors`` are."""

    segment: SegmentRange
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewTransaction:
    """``segments`` carry ids generalised to the transaction's epoch, for the names of the transaction segments."""

    transaction_id: uuid.UUID
    segments: tuple[SegmentRange, ...]


class TransactionState(enum.IntEnum):
    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class PingStatus(enum.IntEnum):
    OK = 0
    LEASE_TOO_LARGE = 1
    MAX_EXECUTION_TIME_EXCEEDED = 2
    SCALE_GRACE_TIME_EXCEEDED = 3
    DISCONNECTED = 4
    COMMITTED = 5
    ABORTED = 6
    UNKNOWN = 7


def stream_info(scope: str, stream: str) -> pb.StreamInfo:
    return pb.StreamInfo(scope=scope, stream=stream)


def range_from(message: pb.SegmentRange) -> SegmentRange:
    info = message.segmentId.streamInfo
    return SegmentRange(info.scope, info.stream, message.segmentId.segmentId, message.minKey, message.maxKey)


def configuration_to(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    scaling, retention = configuration.scaling, configuration.retention
    message = pb.StreamConfig(
        streamInfo=stream_info(scope, stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=pb.ScalingPolicy.ScalingPolicyType.ValueType(scaling.scale_type),
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.segments_min,
        ),
        tags=pb.Tags(tag=configuration.tags),
        timestampAggregationTimeout=configuration.timestamp_aggregation_timeout_ms,
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )
    if retention.retention_type is not RetentionType.NONE:
        message.retentionPolicy.CopyFrom(
            pb.RetentionPolicy(
                retentionType=pb.RetentionPolicy.RetentionPolicyType.ValueType(retention.retention_type),
                retentionParam=retention.keep_min,
                retentionMax=retention.keep_max,
            )
        )
    return message


def configuration_from(message: pb.StreamConfig) -> StreamConfiguration:
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    return StreamConfiguration(
        ScalingPolicy(scaling.minNumSegments, ScaleType(scaling.scaleType), scaling.targetRate, scaling.scaleFactor),
        RetentionPolicy(RetentionType(retention.retentionType), retention.retentionParam, retention.retentionMax),
        tuple(message.tags.tag),
        message.rolloverSizeBytes,
        message.timestampAggregationTimeout,
    )


def transaction_to(transaction_id: uuid.UUID) -> pb.TxnId:
    high, low = transaction_id_bits(transaction_id)
    return pb.TxnId(highBits=high, lowBits=low)


def transaction_from(message: pb.TxnId) -> uuid.UUID:
    return transaction_id_from_bits(message.highBits, message.lowBits)
