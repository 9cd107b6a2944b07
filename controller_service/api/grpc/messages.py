"""Between the API's messages and the controller's records."""

from __future__ import annotations

import base64
import binascii
from typing import Final, cast

from controller_service.store.records import (
    EpochRecord,
    RetentionPolicy,
    RetentionType,
    ScaleType,
    ScalingPolicy,
    SegmentRecord,
    StreamConfiguration,
)
from pravega_common.errors import InvalidArgument
from pravega_common.proto import controller_pb2 as pb

tags_max: Final = 127
tag_chars_max: Final = 255
continuation_chars_max: Final = 4_096

END_TOKEN: Final = base64.b64encode(b"end").decode()
"""Token behind the last page: its page is empty, which is what tells clients that the listing is over."""


def checked_stream(info: pb.StreamInfo) -> tuple[str, str]:
    """Scope and stream; ``InvalidArgument`` if either is missing."""
    if not info.scope:
        raise InvalidArgument("the scope's name is empty")
    if not info.stream:
        raise InvalidArgument(f"the stream's name is empty in scope {info.scope!r}")
    return info.scope, info.stream


def check_configuration(configuration: StreamConfiguration) -> None:
    """``InvalidArgument`` for tags or sizes out of range. The number of segments is checked where it matters."""
    tags = configuration.tags
    if len(tags) > tags_max:
        raise InvalidArgument(f"{len(tags)} tags, at most {tags_max} are possible")
    if any(len(tag) > tag_chars_max for tag in tags):
        raise InvalidArgument(f"a tag is longer than {tag_chars_max} characters")
    rollover = configuration.rollover_size_bytes
    if rollover < 0:
        raise InvalidArgument(f"rollover size {rollover} must not be negative (0: the store's default)")


def configuration_of(message: pb.StreamConfig) -> StreamConfiguration:
    """``InvalidArgument`` for what ``check_configuration`` refuses, and for unknown policies."""
    scaling = message.scalingPolicy
    retention = message.retentionPolicy
    try:
        scale_type = ScaleType(scaling.scaleType)
        retention_type = RetentionType(retention.retentionType)
    except ValueError as error:
        raise InvalidArgument(f"policy type out of range: {error}") from error
    configuration = StreamConfiguration(
        ScalingPolicy(scale_type, scaling.targetRate, scaling.scaleFactor, scaling.minNumSegments),
        # Some clients send type UNKNOWN when they want no retention.
        None
        if retention_type is RetentionType.NONE
        else RetentionPolicy(retention_type, retention.retentionParam, retention.retentionMax),
        tuple(message.tags.tag),
        message.timestampAggregationTimeout,
        message.rolloverSizeBytes,
    )
    check_configuration(configuration)
    return configuration


def configuration_message(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    scaling = configuration.scaling
    message = pb.StreamConfig(
        streamInfo=pb.StreamInfo(scope=scope, stream=stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=cast("pb.ScalingPolicy.ScalingPolicyType.ValueType", int(scaling.scale_type)),
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.min_segments,
        ),
        tags=pb.Tags(tag=configuration.tags),
        timestampAggregationTimeout=configuration.timestamp_aggregation_timeout_ms,
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )
    retention = configuration.retention
    if retention is not None:
        message.retentionPolicy.CopyFrom(
            pb.RetentionPolicy(
                retentionType=cast("pb.RetentionPolicy.RetentionPolicyType.ValueType", int(retention.retention_type)),
                retentionParam=retention.minimum,
                retentionMax=retention.maximum,
            )
        )
    return message


def segment_id_message(scope: str, stream: str, identifier: int) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=scope, stream=stream), segmentId=identifier)


def segment_range(scope: str, stream: str, segment: SegmentRecord) -> pb.SegmentRange:
    return pb.SegmentRange(
        segmentId=segment_id_message(scope, stream, segment.segment_id),
        minKey=segment.key_start,
        maxKey=segment.key_end,
    )


def segment_ranges(scope: str, stream: str, epoch: EpochRecord) -> pb.SegmentRanges:
    """Sorted by key, as records are."""
    return pb.SegmentRanges(segmentRanges=[segment_range(scope, stream, segment) for segment in epoch.segments])


# ---- pages -----------------------------------------------------------------------------------------------------------


def page_start(token: pb.ContinuationToken) -> bytes | None:
    """Where the page of a token starts in the store; None behind the last one."""
    if len(token.token) > continuation_chars_max:
        raise InvalidArgument(f"continuation token of {len(token.token)} characters, at most {continuation_chars_max}")
    if token.token == END_TOKEN:
        return None
    try:
        return base64.b64decode(token.token, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"{token.token[:40]!r} is no continuation token of this controller") from error


def page_token(continuation: bytes) -> pb.ContinuationToken:
    """The token to answer with; clients require one with every page, also with the last."""
    return pb.ContinuationToken(token=base64.b64encode(continuation).decode() if continuation else END_TOKEN)
