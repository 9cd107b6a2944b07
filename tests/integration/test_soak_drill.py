"""Runs the soak drill for some samples: all its clients do their rounds, and all sizes are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.soak import main
from tests.drills.soak.growth import samples_min
from tests.drills.soak.load import ROUNDS

period_s = 1.0
pytestmark = pytest.mark.timeout(300)


def test_all_rounds_are_carried_out_without_errors(tmp_path: Path) -> None:
    result = main.run(tmp_path / "cluster", samples_min, period_s, print)
    assert result.errors == []
    assert result.rounds.keys() == ROUNDS.keys() and all(result.rounds.values())
    assert {"controller: RSS MiB", "Redis: keys", "Tier 2: files", "requests: entries"} <= {
        growth.name for growth in result.growths
    }
