"""Translates between the API's messages and the controller's records."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from controller_service.store.records import EpochRecord, SegmentRecord
from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import NO_MAXIMUM, RetentionType
from pravega_common.model.scaling import scaling_number_max
from pravega_common.model.stream_configuration import StreamConfiguration, tag_chars_max, tags_max
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import configuration_from, segment_id_to

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


def checked_segment(request: pb.SegmentId) -> tuple[str, str, int]:
    """Scope, stream and id of the segment; ``InvalidArgument`` for what no segment can have."""
    scope, stream = checked_stream(request.streamInfo)
    if request.segmentId < 0:
        raise InvalidArgument(f"segment id {request.segmentId} of stream {scope}/{stream} must not be negative")
    return scope, stream, request.segmentId


def check_configuration(configuration: StreamConfiguration) -> None:
    """``InvalidArgument`` for tags, sizes, times or rates out of range. The number of segments is checked where it
    matters."""
    tags = configuration.tags
    if len(tags) > tags_max:
        raise InvalidArgument(f"{len(tags)} tags, at most {tags_max} are possible")
    if any(len(tag) > tag_chars_max for tag in tags):
        raise InvalidArgument(f"a tag is longer than {tag_chars_max} characters")
    rollover = configuration.rollover_size_bytes
    if rollover < 0:
        raise InvalidArgument(f"rollover size {rollover} must not be negative (0: the store's default)")
    timeout_ms = configuration.timestamp_aggregation_timeout_ms
    _check_number("the milliseconds without a report after which a writer counts as gone", timeout_ms, NO_MAXIMUM)
    scaling = configuration.scaling
    _check_number("the scaling policy's target rate", scaling.target_rate, scaling_number_max)
    _check_number("the scaling policy's scale factor", scaling.scale_factor, scaling_number_max)
    retention = configuration.retention
    if retention is not None:
        unit = "bytes" if retention.retention_type is RetentionType.SIZE else "milliseconds"
        _check_number(f"the {unit} to retain", retention.minimum, NO_MAXIMUM)
        _check_number(f"the most {unit} to retain", retention.maximum, NO_MAXIMUM)


def _check_number(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise InvalidArgument(f"{name}: {value} is not possible, must be in 0..{maximum}")


def configuration_of(message: pb.StreamConfig) -> StreamConfiguration:
    """The configuration that a client asks for; ``InvalidArgument`` also for what ``check_configuration`` refuses."""
    configuration = configuration_from(message)
    check_configuration(configuration)
    return configuration


def segment_range(scope: str, stream: str, segment: SegmentRecord) -> pb.SegmentRange:
    return pb.SegmentRange(
        segmentId=segment_id_to(scope, stream, segment.segment_id),
        minKey=segment.key_start,
        maxKey=segment.key_end,
    )


def segment_ranges(scope: str, stream: str, epoch: EpochRecord) -> pb.SegmentRanges:
    """Sorted by key, as records are."""
    return pb.SegmentRanges(segmentRanges=[segment_range(scope, stream, segment) for segment in epoch.segments])


# ---- pages -----------------------------------------------------------------------------------------------------------


def page_start(token: pb.ContinuationToken) -> bytes | None:
    """The place in the store where the page of a token starts; None behind the last page."""
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
