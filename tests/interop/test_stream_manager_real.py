"""Runs the suite of the stream manager on a real Pravega: streams, reader groups, key-value tables."""

from __future__ import annotations

import pytest

from tests.integration.test_stream_manager import (
    manager,
    test_a_key_value_table_is_written_read_and_walked,
    test_readers_in_threads_share_a_stream,
    test_streams_are_made_listed_tagged_and_deleted,
)
from tests.interop.real_pravega import RealPravega

__all__ = [
    "cluster",
    "manager",
    "test_a_key_value_table_is_written_read_and_walked",
    "test_readers_in_threads_share_a_stream",
    "test_streams_are_made_listed_tagged_and_deleted",
]


@pytest.fixture(scope="module")
def cluster(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
