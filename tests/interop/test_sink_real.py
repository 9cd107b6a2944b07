"""Writes streams into a real Pravega, with and without exactly_once."""

from __future__ import annotations

import pytest

from tests.interop.real_pravega import RealPravega
from tests.spark.test_sink import (
    test_a_batch_that_spark_forgot_is_not_written_again,
    test_a_checkpoint_that_went_back_stops_the_query,
    test_at_least_once,
    test_scale_of_the_target_between_batches,
    test_the_decision_is_recorded_under_the_query,
    test_two_batches_with_and_without_keys,
    test_two_queries_into_one_stream,
    test_without_waiting_for_readers,
)

__all__ = [
    "services",
    "test_a_batch_that_spark_forgot_is_not_written_again",
    "test_a_checkpoint_that_went_back_stops_the_query",
    "test_at_least_once",
    "test_scale_of_the_target_between_batches",
    "test_the_decision_is_recorded_under_the_query",
    "test_two_batches_with_and_without_keys",
    "test_two_queries_into_one_stream",
    "test_without_waiting_for_readers",
]


@pytest.fixture(scope="session")
def services(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
