"""The sums of a simulator run in several calls are those of one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator import main as simulator
from tests.simulator.history import Violation
from tests.simulator.main import main
from tests.simulator.simulation import Outcome
from tests.simulator.summary import Summary, SummaryMismatch

RUN = {"commit": "c", "families": ["crash"], "servers": None, "first": 0}
PLACE = "plog.created"


def outcome(seed: int, *violations: Violation) -> Outcome:
    trace = ["    0.0000  seed", "    1.0000  fault: zombie", "    2.0000  fault: crash", "    3.0000  fault: crash"]
    return Outcome(seed, "crash", violations, 10, 100, seed % 2 == 1, {PLACE: 2}, {PLACE: 1}, trace, 5)


@pytest.fixture
def seeds_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that were run, in place of running them; seed 3 fails."""
    run: list[int] = []

    def one(job: simulator.Job) -> Outcome:
        run.append(job.seed)
        return outcome(job.seed, *[Violation("lost", "an event")] * (job.seed == 3))

    monkeypatch.setattr(simulator, "_one", one)
    monkeypatch.setattr(simulator, "regression_seeds", lambda: [(900, "crash")])
    monkeypatch.setattr(simulator, "commit_of_tree", lambda: "c")
    return run


def call(path: Path, seeds: int, *more: str) -> int:
    return main(["--seeds", str(seeds), "--jobs", "1", "--family", "crash", "--summary", str(path), *more])


def test_a_run_goes_on_after_its_last_seed(seeds_run: list[int], tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert call(whole, 6) == 1
    assert seeds_run == [900, 0, 1, 2, 3, 4, 5]
    seeds_run.clear()
    assert call(parts, 2) == 0
    assert call(parts, 6) == 1
    assert seeds_run == [900, 0, 1, 2, 3, 4, 5]
    assert call(parts, 6) == 1, "a run that is done still says what it found"
    assert seeds_run == [900, 0, 1, 2, 3, 4, 5]
    one, several = (Summary.load(path, RUN) for path in (whole, parts))
    one.seconds = several.seconds = 0
    assert vars(one) == vars(several)
    assert (one.seeds, one.next_seed, one.violations, one.acked, one.refused) == (7, 6, 1, 70, 3)
    assert one.faults == {"zombie": 7, "crash": 14}
    assert one.failed == ["3 crash  lost: an event"]


def test_sums_of_another_run_are_refused(seeds_run: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sums"
    call(path, 2)
    before = path.read_bytes()
    assert call(path, 4, "--first", "1") == 2
    assert call(path, 4, "--servers", "3") == 2
    monkeypatch.setattr(simulator, "commit_of_tree", lambda: "d")
    assert call(path, 4) == 2
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "simulator summary 0"}'])
def test_a_file_that_is_no_summary_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "sums"
    path.write_text(content)
    with pytest.raises(SummaryMismatch, match="name another file"):
        Summary.load(path, RUN)
