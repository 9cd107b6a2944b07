"""Reads streams from a real Pravega: starts, restarts, limits, scaling, truncation."""

from __future__ import annotations

import pytest

from tests.interop.real_pravega import RealPravega
from tests.spark.test_source import (
    test_byte_limit_with_available_now,
    test_earliest_and_what_comes_later,
    test_latest_is_the_default,
    test_progress_says_what_is_left,
    test_restarts_continue,
    test_scale_up_and_down_in_mid_query,
    test_several_streams,
    test_start_and_end_at_stream_cuts,
    test_truncated_before_it_was_read,
)

__all__ = [
    "services",
    "test_byte_limit_with_available_now",
    "test_earliest_and_what_comes_later",
    "test_latest_is_the_default",
    "test_progress_says_what_is_left",
    "test_restarts_continue",
    "test_scale_up_and_down_in_mid_query",
    "test_several_streams",
    "test_start_and_end_at_stream_cuts",
    "test_truncated_before_it_was_read",
]


@pytest.fixture(scope="session")
def services(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
