"""Checks how results of two sides and of two commits are set beside each other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench import against, main
from tests.bench.comparison import comparison, cpu_per_gigabyte, ratio, run_ratios, together
from tests.bench.figures import rates
from tests.bench.picture import picture


def result(side: str, seconds: list[float], **more: Any) -> dict[str, Any]:
    """Two GB of 1 KB events."""
    events, size_bytes = 2_000_000, 1_000
    return {
        "case": "write",
        "side": side,
        "event_bytes": size_bytes,
        "events": events,
        **rates(events, size_bytes, seconds),
        "cpu_seconds": {"jvm": 3.0, "store": 5.0},
        "other_cores": [0.0] * len(seconds),
        **more,
    }


def test_a_ratio_is_how_many_times_as_fast_the_first_is() -> None:
    assert ratio(result("ours", [1.0, 2.0, 9.0]), result("kafka", [3.0, 3.0, 3.0])) == 1.5
    assert run_ratios(result("ours", [1.0, 2.0]), result("kafka", [3.0, 1.0])) == [3.0, 0.5]


def test_cpu_seconds_are_those_of_a_gigabyte() -> None:
    assert cpu_per_gigabyte(result("ours", [1.0])) == {"jvm": 1.5, "store": 2.5, "all": 4.0}


def test_the_tables_have_both_sides_and_the_floor() -> None:
    text = comparison([result("ours", [2.0]), result("kafka", [4.0], cpu_seconds={"broker": 6.0})], "ours", "kafka")
    rates_, spent = text.split("CPU seconds a GB")
    assert rates_.splitlines()[-3].split() == ["write", "1000", "1000.0", "500.0", "2.0", "2.0", "0.0"]
    rows = [line.split() for line in spent.splitlines() if line.startswith("write")]
    assert rows == [
        ["write", "ours", "1000", "4.0", "4.5", "1.5", "2.5"],
        ["write", "kafka", "1000", "3.0", "4.5", "3.0"],
    ]


def test_one_side_alone_has_no_ratio() -> None:
    assert "1000.0" in comparison([result("ours", [2.0])], "ours", "kafka")


def test_runs_of_a_commit_become_one_result() -> None:
    runs = [[result("ours", [2.0])], [result("ours", [1.0], other_cores=[0.5])], [result("ours", [4.0])]]
    (made,) = together(runs, "this")
    assert (made["side"], made["seconds"], made["megabytes_per_second"]) == ("this", [2.0, 1.0, 4.0], 1000.0)
    assert made["cpu_seconds"] == {"jvm": 3.0, "store": 5.0} and max(made["other_cores"]) == 0.5


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a commit that differs from what is checked out."""
    root = tmp_path / "repository"
    root.mkdir()

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments], cwd=root, check=True)

    git("init", "--quiet")
    for text in ("before", "now"):
        (root / "state").write_text(text)
        git("add", "state")
        git("commit", "--quiet", "-m", text)
    monkeypatch.setattr(against, "ROOT", root)
    return root


def runner(order: list[str]) -> Callable[..., list[dict[str, Any]]]:
    def run(tree: Path, options: list[str]) -> list[dict[str, Any]]:
        state = (tree / "state").read_text()
        order.append(state)
        return [result("ours", [1.0 if state == "now" else 2.0])]

    return run


def test_both_trees_run_in_turn_and_the_worktree_goes(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(against, "_run", runner(order))
    this, other = against.measure_against("HEAD~1", [], 2)
    assert order == ["now", "before", "before", "now"]
    assert (this["side"], other["side"], ratio(this, other)) == (against.THIS, "HEAD~1", 2.0)
    listed = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


@pytest.mark.usefixtures("repository")
def test_a_commit_that_is_not_there_is_told() -> None:
    with pytest.raises(SystemExit, match=r"git worktree: .*no-such"):
        against.measure_against("no-such", [], 1)


def test_a_run_of_the_other_commit_measures_the_same() -> None:
    args = main.compare_parser().parse_args(["--sizes", "100,1000", "--cases", "write", "--scale", "0.5"])
    again = main.spark_parser().parse_args(main.same_options(args))
    assert (again.sizes, again.cases, again.scale, again.tier2) == ([100, 1000], ["write"], 0.5, "dir")


def test_the_picture_has_a_bar_of_each_side_on_one_scale() -> None:
    read = {"case": "read", "event_bytes": 100}
    results = [result("ours", [2.0]), result("kafka", [4.0]), result("ours", [1.0], **read)]
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ElementTree.fromstring(picture(results, "kafka"))
    bars = [float(bar.attrib["width"]) for bar in drawn.iter(f"{svg}rect") if bar.attrib.get("x") == "90"]
    assert bars == [300.0, 150.0, 600.0, 11.0], "written by ours and Kafka, read by ours, the legend"
    words = [text.text for text in drawn.iter(f"{svg}text")]
    assert words[:4] == ["Spark → stream, batch", "1 KB", "1000 MB/s, 2.00 ×", "500"]
    assert words[4:7] == ["stream → Spark, batch", "100 B", "2000 MB/s"]
