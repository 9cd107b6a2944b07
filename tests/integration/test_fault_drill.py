"""Inflicts three faults of the drill and sees that health, window and alerts name them."""

from __future__ import annotations

from pathlib import Path

from tests.drills.faults.faults import FAULTS
from tests.drills.faults.run import run


def test_a_dead_controller_a_blocked_commit_and_a_full_tier1_are_named(tmp_path: Path) -> None:
    names = ("controller-killed", "commit-blocked", "tier1-full")
    result = run(tmp_path, [FAULTS[name] for name in names], "dir", asks_doctor=False, tell=print)
    assert result.good, result
    assert [row.fault for row in result.rows] == list(names)
