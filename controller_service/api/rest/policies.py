"""Translates stream configurations to and from the bodies of Pravega's REST API (docs/controller-api.md 8)."""

from __future__ import annotations

from typing import Final

from controller_service.api.grpc.messages import check_configuration
from controller_service.api.rest.bodies import (
    RetentionConfig,
    ScaleKind,
    ScalingConfig,
    StreamProperty,
    TimeBasedRetention,
    UpdateStreamRequest,
)
from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy, scale_factor_min
from pravega_common.model.stream_configuration import StreamConfiguration

_SCALE_NAMES: Final[dict[ScaleType, ScaleKind]] = {
    ScaleType.FIXED: "FIXED_NUM_SEGMENTS",
    ScaleType.KILOBYTES_PER_SECOND: "BY_RATE_IN_KBYTES_PER_SEC",
    ScaleType.EVENTS_PER_SECOND: "BY_RATE_IN_EVENTS_PER_SEC",
}
_SCALE_TYPES: Final = {name: kind for kind, name in _SCALE_NAMES.items()}
_MIB: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


def configuration_of(body: UpdateStreamRequest) -> StreamConfiguration:
    """``InvalidArgument`` for what no stream can have; a rate and a factor of 0 are left to the workflow, which knows
    whether the stream has them already."""
    scaling, retention = body.scaling_policy, body.retention_policy
    factor = scaling.scale_factor
    if factor is None:
        factor = 0 if scaling.type == "FIXED_NUM_SEGMENTS" else scale_factor_min
    configuration = StreamConfiguration(
        ScalingPolicy(_SCALE_TYPES[scaling.type], scaling.target_rate or 0, factor, scaling.min_segments),
        None if retention is None else _retention_of(retention),
        tuple(body.stream_tags or ()),
        body.timestamp_aggregation_timeout or 0,
        body.rollover_size_bytes or 0,
    )
    check_configuration(configuration)
    return configuration


def stream_property(scope: str, stream: str, configuration: StreamConfiguration) -> StreamProperty:
    """The API's description of a stream."""
    scaling = configuration.scaling
    by_rate = scaling.scale_type is not ScaleType.FIXED
    return StreamProperty.model_construct(
        scope_name=scope,
        stream_name=stream,
        scaling_policy=ScalingConfig.model_construct(
            type=_SCALE_NAMES[scaling.scale_type],
            target_rate=scaling.target_rate if by_rate else None,
            scale_factor=scaling.scale_factor if by_rate else None,
            min_segments=scaling.min_segments,
        ),
        retention_policy=None if configuration.retention is None else _retention_config(configuration.retention),
        tags=list(configuration.tags),
        timestamp_aggregation_timeout=configuration.timestamp_aggregation_timeout_ms,
        rollover_size_bytes=configuration.rollover_size_bytes,
    )


def _retention_of(body: RetentionConfig) -> RetentionPolicy:
    """``InvalidArgument`` for a policy that keeps nothing: somebody who left the number out does not mean that."""
    value, maximum = body.value or 0, body.max_value or 0
    if body.type == "LIMITED_SIZE_MB":
        if body.time_based_retention is not None or body.max_time_based_retention is not None:
            raise InvalidArgument("retentionPolicy: a time is given with LIMITED_SIZE_MB, whose value is in MiB")
        policy = RetentionPolicy(RetentionType.SIZE, value * _MIB, maximum * _MIB)
    else:
        policy = RetentionPolicy(
            RetentionType.TIME,
            value * _DAY_MS or _milliseconds(body.time_based_retention),
            maximum * _DAY_MS or _milliseconds(body.max_time_based_retention),
        )
    if not policy.minimum:
        raise InvalidArgument(
            f"retentionPolicy of type {body.type} keeps nothing: give value above 0"
            + ("" if body.type == "LIMITED_SIZE_MB" else ", or timeBasedRetention")
        )
    return policy


def _milliseconds(span: TimeBasedRetention | None) -> int:
    if span is None:
        return 0
    return (span.days or 0) * _DAY_MS + (span.hours or 0) * _HOUR_MS + (span.minutes or 0) * _MINUTE_MS


def _retention_config(policy: RetentionPolicy) -> RetentionConfig:
    """Without the maximum, as in Pravega. Rounded up: what is read and written back keeps no less."""
    if policy.retention_type is RetentionType.SIZE:
        return RetentionConfig.model_construct(type="LIMITED_SIZE_MB", value=-(-policy.minimum // _MIB))
    days, rest = divmod(-(-policy.minimum // _MINUTE_MS) * _MINUTE_MS, _DAY_MS)
    span = TimeBasedRetention(days=days, hours=rest // _HOUR_MS, minutes=rest % _HOUR_MS // _MINUTE_MS)
    return RetentionConfig.model_construct(type="LIMITED_DAYS", value=0 if rest else days, time_based_retention=span)
