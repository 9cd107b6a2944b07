"""Runs a small part of the drills of controllers: each process killed once, and a dozen scales by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.controllers import failover, rescale

scales = rescale.scales_across + 2
pytestmark = pytest.mark.timeout(600)


def test_clients_see_no_error_while_each_process_dies(tmp_path: Path) -> None:
    result = failover.run(tmp_path / "cluster", len(failover.VICTIMS), 0.0, 1, print)
    assert result.good, result
    assert all(result.rounds_s[victim] for victim in failover.VICTIMS)
    assert result.tally.acked and result.transactions and result.streams


def test_scales_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    result = rescale.run(tmp_path / "cluster", scales, 1, is_by_load=False, tell=print)
    assert result.good, result
    assert len(result.layouts) == scales
    assert sum(count >= rescale.scales_across for count in result.across) >= 2
    assert result.stored.acked == result.read.acked > 0
