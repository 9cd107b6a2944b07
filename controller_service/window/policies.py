"""Puts policies of streams into words."""

from __future__ import annotations

from pravega_common.model.retention import NO_MAXIMUM, RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy


def scaling_in_words(policy: ScalingPolicy) -> str:
    if policy.scale_type is ScaleType.FIXED:
        return f"fixed, {policy.min_segments} at the start or more"
    unit = "KB/s" if policy.scale_type is ScaleType.KILOBYTES_PER_SECOND else "events/s"
    return (
        f"{policy.target_rate} {unit} a segment, split in {policy.scale_factor} at most, {policy.min_segments} or more"
    )


def retention_in_words(policy: RetentionPolicy | None) -> str:
    if policy is None or policy.retention_type is RetentionType.NONE:
        return "everything is kept"
    words = _time if policy.retention_type is RetentionType.TIME else _size
    text = f"the last {words(policy.minimum)} at least"
    if 0 < policy.maximum < NO_MAXIMUM:
        text += f", {words(policy.maximum)} at most"
    return text


def _time(milliseconds: int) -> str:
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        count, rest = divmod(milliseconds, length)
        if count and not rest:
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return f"{milliseconds:,} ms"


def _size(count: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        whole, rest = divmod(count, length)
        if whole and not rest:
            return f"{whole:,} {unit}"
    return f"{count:,} bytes"
