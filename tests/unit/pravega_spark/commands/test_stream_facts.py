"""Tests the words for the policies of a stream."""

from __future__ import annotations

import pytest

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_spark.commands.stream_facts import retention_text, scaling_text

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, "everything is kept"),
        (RetentionPolicy.by_time(HOUR_MS), "keep 1 hour"),
        (RetentionPolicy.by_time(3 * HOUR_MS // 2), "keep 1.5 hours"),
        (RetentionPolicy.by_size(1), "keep 1 byte"),
        (RetentionPolicy.by_size(5_000), "keep 5,000 bytes"),
    ],
)
def test_retention(policy: RetentionPolicy | None, text: str) -> None:
    assert retention_text(policy) == text


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RetentionPolicy.by_time(86_400_000, 259_200_000), "keep 24 hours, and 72 hours for subscribers at most"),
        (RetentionPolicy.by_size(1_000, 2_000), "keep 1,000 bytes, and 2,000 bytes for subscribers at most"),
        (RetentionPolicy.by_size(1_000, 0), "keep 1,000 bytes"),
    ],
)
def test_what_subscribers_that_do_not_read_lose(policy: RetentionPolicy, text: str) -> None:
    assert retention_text(policy) == text


def test_scaling_says_nothing_that_scaling_by_hand_makes_wrong() -> None:
    assert scaling_text(ScalingPolicy.fixed(2)) == "fixed, 2 at the start or more"
    policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 1)
    assert scaling_text(policy) == "100 events/s a segment, split by 2, at least 1 segment"
