"""Translates stream configurations to and from the JSON of Pravega's REST API (docs/controller-api.md 8)."""

from __future__ import annotations

from typing import Any, Final

from controller_service.api.grpc.messages import check_configuration
from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration

_SCALE_NAMES: Final = {
    ScaleType.FIXED: "FIXED_NUM_SEGMENTS",
    ScaleType.KILOBYTES_PER_SECOND: "BY_RATE_IN_KBYTES_PER_SEC",
    ScaleType.EVENTS_PER_SECOND: "BY_RATE_IN_EVENTS_PER_SEC",
}
_SCALE_TYPES: Final = {name: kind for kind, name in _SCALE_NAMES.items()}
_DAYS: Final = "LIMITED_DAYS"
_MEGABYTES: Final = "LIMITED_SIZE_MB"
_MIB: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


def configuration_of(body: dict[str, Any]) -> StreamConfiguration:
    """``InvalidArgument`` says what is wrong with the body."""
    configuration = StreamConfiguration(
        _scaling_of(_section(body, "scalingPolicy")),
        _retention_of(_section(body, "retentionPolicy")) if body.get("retentionPolicy") else None,
        tuple(_tag(item) for item in body.get("streamTags") or ()),
        _whole(body, "timestampAggregationTimeout"),
        _whole(body, "rolloverSizeBytes"),
    )
    check_configuration(configuration)
    return configuration


def stream_property(scope: str, stream: str, configuration: StreamConfiguration) -> dict[str, Any]:
    """The API's description of a stream."""
    scaling = configuration.scaling
    policy: dict[str, Any] = {"type": _SCALE_NAMES[scaling.scale_type]}
    if scaling.scale_type is not ScaleType.FIXED:
        policy |= {"targetRate": scaling.target_rate, "scaleFactor": scaling.scale_factor}
    policy["minSegments"] = scaling.min_segments
    found: dict[str, Any] = {"scopeName": scope, "streamName": stream, "scalingPolicy": policy}
    if configuration.retention is not None:
        found["retentionPolicy"] = _retention_json(configuration.retention)
    return found | {
        "tags": list(configuration.tags),
        "timestampAggregationTimeout": configuration.timestamp_aggregation_timeout_ms,
        "rolloverSizeBytes": configuration.rollover_size_bytes,
    }


def _scaling_of(body: dict[str, Any]) -> ScalingPolicy:
    kind = _SCALE_TYPES.get(str(body.get("type")))
    if kind is None:
        raise InvalidArgument(f"scalingPolicy.type is {body.get('type')!r}, must be one of {', '.join(_SCALE_TYPES)}")
    segments = _whole(body, "minSegments")
    if segments < 1:
        raise InvalidArgument(f"scalingPolicy.minSegments is {segments}, must be at least 1")
    return ScalingPolicy(kind, _whole(body, "targetRate"), _whole(body, "scaleFactor"), segments)


def _retention_of(body: dict[str, Any]) -> RetentionPolicy:
    kind = body.get("type")
    value, maximum = _whole(body, "value"), _whole(body, "maxValue")
    if kind == _MEGABYTES:
        return RetentionPolicy(RetentionType.SIZE, value * _MIB, maximum * _MIB)
    if kind != _DAYS:
        raise InvalidArgument(f"retentionPolicy.type is {kind!r}, must be {_DAYS} or {_MEGABYTES}")
    return RetentionPolicy(
        RetentionType.TIME,
        value * _DAY_MS or _milliseconds(body.get("timeBasedRetention")),
        maximum * _DAY_MS or _milliseconds(body.get("maxTimeBasedRetention")),
    )


def _milliseconds(span: Any) -> int:
    if not isinstance(span, dict):
        return 0
    return _whole(span, "days") * _DAY_MS + _whole(span, "hours") * _HOUR_MS + _whole(span, "minutes") * _MINUTE_MS


def _retention_json(policy: RetentionPolicy) -> dict[str, Any]:
    if policy.retention_type is RetentionType.SIZE:
        return {"type": _MEGABYTES, "value": policy.minimum // _MIB}
    days, rest = divmod(policy.minimum, _DAY_MS)
    span = {"days": days, "hours": rest // _HOUR_MS, "minutes": rest % _HOUR_MS // _MINUTE_MS}
    return {"type": _DAYS, "value": 0 if rest else days, "timeBasedRetention": span}


def _section(body: dict[str, Any], name: str) -> dict[str, Any]:
    section = body.get(name)
    if not isinstance(section, dict):
        raise InvalidArgument(f"{name} is missing or not an object")
    return section


def _tag(item: Any) -> str:
    if not isinstance(item, str):
        raise InvalidArgument(f"stream tag {item!r} is not a text")
    return item


def _whole(body: dict[str, Any], name: str) -> int:
    """A number that is not negative; 0 if it is missing."""
    value = body.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise InvalidArgument(f"{name} is {value!r}, must be a whole number of at least 0")
    return value
