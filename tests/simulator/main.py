"""``scripts/simulate``: many seeds, in several processes, and what they found."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulator.crash_points import store_failpoints
from tests.simulator.settings import EXPECTED, FAMILIES, draw
from tests.simulator.simulation import Outcome, simulate

REGRESSIONS: Final = Path(__file__).with_name("regressions.txt")
last_lines: Final = 12
"""Lines of the trace that are printed for a seed that failed."""


def regression_seeds(path: Path = REGRESSIONS) -> list[tuple[int, str]]:
    """Seeds that failed once, with their family: lines ``SEED FAMILY  what it was``."""
    lines = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return [(int(words[0]), words[1]) for words in lines]


class Job(NamedTuple):
    seed: int
    families: tuple[str, ...]
    servers: int | None
    in_detail: bool = False


def _one(job: Job) -> Outcome:
    return simulate(draw(job.seed, job.families, job.servers), in_detail=job.in_detail)


def outcomes(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    if workers == 1:
        yield from map(_one, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_one, jobs, chunksize=1)


def _arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--family", action="append", choices=FAMILIES, help=f"faults; by default {', '.join(EXPECTED)}")
    parser.add_argument("--servers", type=int, choices=(1, 3), help="servers of Tier 1; by default drawn by each seed")
    parser.add_argument("--trace", type=Path, help="write the whole trace of the last seed there")
    parser.add_argument("--detail", action="store_true", help="with every call of a client and what the product logs")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="processes")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    options = _arguments(args)
    families = tuple(options.family or EXPECTED)
    started_s = time.monotonic()
    if options.seed is not None:
        jobs = [Job(options.seed, families, options.servers, in_detail=options.detail)]
    else:
        jobs = [Job(seed, (family,), options.servers) for seed, family in regression_seeds() if family in families]
        jobs += [Job(seed, families, options.servers) for seed in range(options.first, options.first + options.seeds)]
    summary = Summary()
    for outcome in outcomes(jobs, min(options.jobs, len(jobs))):
        summary.add(outcome)
        if options.trace is not None:
            options.trace.write_text("\n".join(outcome.trace) + "\n")
    print(summary.text(time.monotonic() - started_s))
    return 1 if summary.violations else 0


class Summary:
    """Adds up what the seeds of a call found."""

    def __init__(self) -> None:
        self.seeds = 0
        self.violations = 0
        self._failed: Counter[str] = Counter()
        self._reached: Counter[str] = Counter()
        self._crashed: Counter[str] = Counter()
        self._acked = 0
        self._refused = 0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.violations += len(outcome.violations)
        self._reached.update(outcome.reached)
        self._crashed.update(outcome.crashed)
        self._acked += outcome.acked
        self._refused += outcome.refused
        if outcome.violations:
            self._failed[outcome.family] += 1
            first = outcome.violations[0]
            print(f"seed {outcome.seed} ({outcome.family}): {first.kind}: {first.text}")
            sys.stdout.writelines(f"    {line}\n" for line in outcome.trace[-last_lines:])
            sys.stdout.flush()

    def text(self, seconds: float) -> str:
        known = store_failpoints()
        missed = [name for name in known if not self._crashed[name]]
        failed = ", ".join(f"{count} of {family}" for family, count in sorted(self._failed.items())) or "none"
        lines = [
            f"{self.seeds} seeds, {self.violations} violations (seeds that failed: {failed}), "
            f"{self._acked} operations acknowledged, {self._refused} losses refused, {seconds:.0f} s",
            f"failpoints: stores killed at {len(known) - len(missed)} of {len(known)}{_list(' not at', missed)}",
            f"failpoints never reached: {', '.join(name for name in known if not self._reached[name]) or 'none'}",
        ]
        return "\n".join(lines)


def _list(what: str, names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f";{what}: {text}" if text else ""


if __name__ == "__main__":
    sys.exit(main())
