from __future__ import annotations

import pytest

from segment_service.durable_log.checkpoint_policy import CheckpointPolicy


@pytest.mark.parametrize(
    ("operations", "log_bytes", "snapshot_bytes", "due"),
    [(9, 99, 0, False), (10, 1, 0, True), (1, 100, 0, True), (10, 100, 26, False), (10, 104, 26, True)],
)
def test_when_a_checkpoint_is_due(operations: int, log_bytes: int, snapshot_bytes: int, due: bool) -> None:
    policy = CheckpointPolicy(operations_max=10, bytes_max=100, snapshot_ratio=4)
    assert policy.is_due(operations, log_bytes, snapshot_bytes) is due
