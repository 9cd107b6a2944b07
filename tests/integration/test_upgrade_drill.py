"""Upgrades a cluster under load, service by service, and loses nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.drills.upgrade.cluster import unpacked
from tests.drills.upgrade.main import run
from tests.support.repository import ROOT

OLDER = "40bcc49c"
"""The commit whose data folder is in ``tests/data/formats``."""


def is_known(commit: str) -> bool:
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not is_known(OLDER), reason=f"this clone has no {OLDER}: it is not the whole history")
def test_nothing_is_lost_on_the_way_from_an_older_commit(tmp_path: Path) -> None:
    result = run(tmp_path / "cluster", unpacked(OLDER, tmp_path / "old"), print)
    assert result.good and result.tally.acked > 0, result
    assert set(result.ready_s) == {"store-0", "store-1", "controller-0", "controller-1"}


def test_an_unknown_commit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--from no-such-commit: fatal: "):
        unpacked("no-such-commit", tmp_path / "old")
