"""Adds up what the seeds of a run found, in a file from which a later call goes on."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pravega_common.services.private_files import replace_file
from tests.simulator.crash_points import store_failpoints
from tests.simulator.simulation import Outcome
from tests.support.repository import ROOT

FORMAT: Final = "simulator summary 1"
failed_seeds_max: Final = 1_000
"""Seeds that failed which are named; more are only counted."""


class SummaryMismatch(Exception):
    """A summary is of another run: its sums and this run's mean nothing together."""


def commit_of_tree() -> str:
    """The commit that is checked out, with ``-dirty`` if files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


class Summary:
    """Sums over seeds. ``next_seed``: the first one that has not run; ``None`` before the first."""

    def __init__(self, run: dict[str, Any] | None = None) -> None:
        """``run``: what must agree between calls that add to one file, as JSON gives it back."""
        self.run = run or {}
        self.seeds = 0
        self.violations = 0
        self.seconds = 0.0
        self.next_seed: int | None = None
        self.failed: list[str] = []
        self.failed_by_family: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.crashed: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.acked = 0
        self.refused = 0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.violations += len(outcome.violations)
        self.reached.update(outcome.reached)
        self.crashed.update(outcome.crashed)
        self.faults.update(line.partition("  fault: ")[2] for line in outcome.trace if "  fault: " in line)
        self.acked += outcome.acked
        self.refused += outcome.refused
        if outcome.violations:
            self.failed_by_family[outcome.family] += 1
            if len(self.failed) < failed_seeds_max:
                first = outcome.violations[0]
                self.failed.append(f"{outcome.seed} {outcome.family}  {first.kind}: {first.text}")

    # --- the file

    def save(self, path: Path) -> None:
        """Replace the file as a whole: a call that is killed leaves the sums after some seed."""
        known = store_failpoints()
        content = {
            "format": FORMAT,
            **vars(self),
            "never_reached": [name for name in known if not self.reached[name]],
            "never_killed_at": [name for name in known if not self.crashed[name]],
        }
        replace_file(path, (json.dumps(content, indent=1) + "\n").encode(), mode=0o644)

    @classmethod
    def load(cls, path: Path, run: dict[str, Any]) -> Summary:
        """The sums so far. ``SummaryMismatch`` if they are those of another run, or the file is no summary."""
        try:
            content = json.loads(path.read_text())
            if content["format"] != FORMAT:
                raise SummaryMismatch(f"{path} is no {FORMAT}; name another file")
            summary = cls(run)
            for name, value in vars(summary).items():
                setattr(summary, name, Counter(content[name]) if isinstance(value, Counter) else content[name])
        except (ValueError, KeyError, TypeError) as error:
            raise SummaryMismatch(f"{path} is no summary ({error!r}); name another file") from None
        if summary.run != run:
            raise SummaryMismatch(f"{path} adds up {summary.run}, this call runs {run}; name another file")
        return summary

    def text(self, seconds: float) -> str:
        known = store_failpoints()
        missed = [name for name in known if not self.crashed[name]]
        failed = ", ".join(f"{count} of {family}" for family, count in sorted(self.failed_by_family.items())) or "none"
        lines = [
            f"{self.seeds} seeds, {self.violations} violations (seeds that failed: {failed}), "
            f"{self.acked} operations acknowledged, {self.refused} losses refused, {seconds:.0f} s",
            f"faults: {', '.join(f'{name} {count}' for name, count in self.faults.most_common()) or 'none'}",
            f"failpoints: stores killed at {len(known) - len(missed)} of {len(known)}{_list(' not at', missed)}",
            f"failpoints never reached: {_names(known, self.reached)}",
        ]
        return "\n".join(lines)


def _names(known: Sequence[str], reached: Counter[str]) -> str:
    return ", ".join(name for name in known if not reached[name]) or "none"


def _list(what: str, names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f";{what}: {text}" if text else ""
