"""Reads and writes batches on a real Pravega."""

from __future__ import annotations

import pytest

from tests.interop.real_pravega import RealPravega
from tests.spark.test_batch import (
    test_a_failed_job_leaves_nothing,
    test_at_least_once,
    test_events_of_every_size,
    test_keys_keep_their_order,
    test_metadata,
    test_named_jobs_are_written_once,
    test_out_and_in,
    test_over_a_scale,
    test_stream_cuts,
)

__all__ = [
    "services",
    "test_a_failed_job_leaves_nothing",
    "test_at_least_once",
    "test_events_of_every_size",
    "test_keys_keep_their_order",
    "test_metadata",
    "test_named_jobs_are_written_once",
    "test_out_and_in",
    "test_over_a_scale",
    "test_stream_cuts",
]


@pytest.fixture(scope="session")
def services(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
