"""Inflicts five faults of the drill and sees that health, window and alerts name them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.drills.faults.faults import FAULTS
from tests.drills.faults.run import run


def test_a_dead_controller_a_blocked_commit_and_a_full_tier1_are_named(tmp_path: Path) -> None:
    names = ("controller-killed", "commit-blocked", "tier1-full")
    result = run(tmp_path, [FAULTS[name] for name in names], "dir", asks_doctor=False, tell=print)
    assert result.good, result
    assert [row.fault for row in result.rows] == list(names)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the library that sets clocks: install gcc")
def test_clocks_that_differ_are_named_and_stop_nothing(tmp_path: Path) -> None:
    """A day is far beyond the life of the tokens that controllers give to clients, and show to stores."""
    names = ("clock-ahead", "redis-clock-ahead")
    result = run(tmp_path, [FAULTS[name] for name in names], "dir", asks_doctor=True, tell=print)
    assert result.good, result
    assert result.rows[0].doctor == ["problem: clock-differs"], "its round trip worked meanwhile"
