"""Runs the suite of reader groups on a real Pravega, the PyPI client in one of the groups."""

from __future__ import annotations

import pytest

from tests.integration.test_reader_groups import (
    client,
    test_a_group_at_the_tail_reads_what_comes,
    test_a_group_begins_again_at_a_checkpoint,
    test_a_group_reads_between_two_cuts,
    test_a_mixed_group_with_the_pypi_client_reads_everything_once,
    test_a_reader_dies_and_another_one_comes,
    test_retention_waits_for_a_group,
    test_slices_are_views_and_come_again_unless_released,
    test_three_readers_read_everything_once_while_the_stream_scales,
    test_what_was_truncated_is_said_and_passed_over,
    writer_client,
)
from tests.interop.real_pravega import RealPravega

__all__ = [
    "client",
    "cluster",
    "test_a_group_at_the_tail_reads_what_comes",
    "test_a_group_begins_again_at_a_checkpoint",
    "test_a_group_reads_between_two_cuts",
    "test_a_mixed_group_with_the_pypi_client_reads_everything_once",
    "test_a_reader_dies_and_another_one_comes",
    "test_retention_waits_for_a_group",
    "test_slices_are_views_and_come_again_unless_released",
    "test_three_readers_read_everything_once_while_the_stream_scales",
    "test_what_was_truncated_is_said_and_passed_over",
    "writer_client",
]


@pytest.fixture(scope="module")
def cluster(real_pravega: RealPravega) -> RealPravega:
    return real_pravega
