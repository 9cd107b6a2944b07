"""Runs the bench of the source tree and of another commit in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.comparison import together
from tests.bench.figures import Result
from tests.bench.rig import say
from tests.support.repository import ROOT

THIS: Final = "this"
run_time_max_s: Final = 1_800


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A worktree of a commit in a temporary folder, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def measure_against(commit: str, options: Sequence[str], runs: int) -> list[Result]:
    """Results of both, under the sides ``this`` and ``commit``; each run is a session of its own in its tree."""
    found: dict[str, list[list[Result]]] = {THIS: [], commit: []}
    with tree_of(commit) as other:
        for number in range(runs):
            # The second of two may find a warmer machine: the order changes from run to run.
            order = [(THIS, ROOT), (commit, other)]
            for name, tree in order if number % 2 == 0 else reversed(order):
                say(f"run {number + 1} of {name}")
                found[name].append(_run(tree, options))
    return [result for name, results in found.items() for result in together(results, name)]


def _run(tree: Path, options: Sequence[str]) -> list[Result]:
    command = [sys.executable, "-m", "tests.bench.main", "spark", "--no-kafka", "--runs", "1", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, timeout=run_time_max_s, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"scripts/bench compare: the bench of '{tree}' failed; its last lines are above")
    results: list[Result] = json.loads(done.stdout)["results"]
    return results


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"scripts/bench compare: git {arguments[0]}: {done.stderr.strip()}")
