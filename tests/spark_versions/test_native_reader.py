"""Reads streams by option ``native_reader`` with the jar of the Spark that is installed."""

from __future__ import annotations

from tests.spark.test_native_reader import (
    child,
    place,
    test_a_streaming_query_reads_each_event_once,
    test_an_event_without_room_is_left_to_python_with_what_follows,
    test_the_same_rows_as_by_python,
)

__all__ = [
    "child",
    "place",
    "test_a_streaming_query_reads_each_event_once",
    "test_an_event_without_room_is_left_to_python_with_what_follows",
    "test_the_same_rows_as_by_python",
]
