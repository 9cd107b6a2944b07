"""Runs the suites of byte streams and of ranges of events on a real Pravega."""

from __future__ import annotations

import pytest

from tests.integration.test_byte_streams import (
    SCOPE,
    client,
    test_a_byte_stream_is_truncated_and_sealed,
    test_a_read_waits_at_the_tail,
    test_bytes_come_back_through_the_interfaces_of_io,
    test_the_pypi_client_and_ours_share_a_byte_stream,
)
from tests.interop.real_pravega import RealPravega

__all__ = [
    "SCOPE",
    "client",
    "cluster",
    "test_a_byte_stream_is_truncated_and_sealed",
    "test_a_read_waits_at_the_tail",
    "test_bytes_come_back_through_the_interfaces_of_io",
    "test_the_pypi_client_and_ours_share_a_byte_stream",
]


@pytest.fixture(scope="module")
def cluster(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
