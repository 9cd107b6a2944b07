"""Makes the retention policies that options name."""

from __future__ import annotations

from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import RetentionPolicy
from pravega_spark.commands.quantities import ms_of_hours, parse_bytes


def retention_policy(keep_bytes: str, keep_hours: float) -> RetentionPolicy | None:
    """Makes the policy that the options of ``create`` name; None keeps everything."""
    if keep_bytes and keep_hours:
        raise InvalidArgument(
            f"--retain-bytes {keep_bytes} and --retain-hours {keep_hours:g} exclude each other: a stream has one "
            "retention"
        )
    return policy_of(
        parse_bytes(keep_bytes, "--retain-bytes") if keep_bytes else 0,
        ms_of_hours(keep_hours, "--retain-hours") if keep_hours else 0,
    )


def policy_of(size_bytes: int, age_ms: int) -> RetentionPolicy | None:
    """Makes the policy by size or by age; None keeps everything, when both are 0."""
    if size_bytes:
        return RetentionPolicy.by_size(size_bytes)
    return RetentionPolicy.by_time(age_ms) if age_ms else None
