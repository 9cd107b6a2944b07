"""Policies are put into words."""

from __future__ import annotations

import pytest

from controller_service.window.policies import retention_in_words, scaling_in_words
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (None, "everything is kept"),
        (RetentionPolicy.by_time(7 * 86_400_000), "the last 7 days at least"),
        (RetentionPolicy.by_time(3_600_000, 7_200_000), "the last 1 hour at least, 2 hours at most"),
        (RetentionPolicy.by_time(1_500), "the last 1,500 ms at least"),
        (RetentionPolicy.by_size(5 << 20, 1 << 30), "the last 5 MiB at least, 1 GiB at most"),
        (RetentionPolicy.by_size(1_000), "the last 1,000 bytes at least"),
    ],
)
def test_retention(policy: RetentionPolicy | None, words: str) -> None:
    assert retention_in_words(policy) == words


def test_scaling() -> None:
    assert scaling_in_words(ScalingPolicy.fixed(3)) == "fixed, 3 at the start or more"
    by_rate = ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 100, 4, 2)
    assert scaling_in_words(by_rate) == "100 KB/s a segment, split in 4 at most, 2 or more"
