"""``scripts/simulate``: many seeds, in several processes, and what they found."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulator.old_defects import OLD_DEFECTS
from tests.simulator.settings import EXPECTED, FAMILIES, draw
from tests.simulator.simulation import Outcome, simulate
from tests.simulator.summary import Summary, SummaryMismatch, commit_of_tree

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
    next_seed: int | None = None
    """The first seed that is left after this one, if seeds are counted by it."""
    old_defect: str | None = None
    """The defect that the product has again, if any."""


def _one(job: Job) -> Outcome:
    unfixed = OLD_DEFECTS[job.old_defect].unfixed() if job.old_defect is not None else contextlib.nullcontext()
    with unfixed:
        return simulate(draw(job.seed, job.families, job.servers), in_detail=job.in_detail)


def outcomes(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    if workers <= 1:
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
    parser.add_argument(
        "--old-defect",
        choices=tuple(OLD_DEFECTS),
        help="switch its fix off, and see whether the seeds of its family find it; not those that failed once",
    )
    parser.add_argument("--servers", type=int, choices=(1, 3), help="servers of Tier 1; by default drawn by each seed")
    parser.add_argument("--summary", type=Path, help="file of the sums: go on after the last seed it counts")
    parser.add_argument("--trace", type=Path, help="write the whole trace of the last seed there")
    parser.add_argument("--detail", action="store_true", help="with every call of a client and what the product logs")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="processes")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    options = _arguments(args)
    families = _families(options)
    started_s = time.monotonic()
    try:
        summary = _summary(options, families)
    except SummaryMismatch as error:
        print(error, file=sys.stderr)
        return 2
    before_s = summary.seconds
    jobs = _jobs(options, families, summary.next_seed)
    for job, outcome in zip(jobs, outcomes(jobs, min(options.jobs, len(jobs))), strict=True):
        summary.add(outcome)
        _show_failure(outcome)
        if job.next_seed is not None:
            summary.next_seed = job.next_seed
        summary.seconds = before_s + time.monotonic() - started_s
        if options.summary is not None and job.next_seed is not None:
            summary.save(options.summary)
        if options.trace is not None:
            options.trace.write_text("\n".join(outcome.trace) + "\n")
    print(summary.text(summary.seconds))
    return 1 if summary.violations else 0


def _families(options: argparse.Namespace) -> tuple[str, ...]:
    if options.old_defect is not None:
        return (OLD_DEFECTS[options.old_defect].family,)
    return tuple(options.family or EXPECTED)


def _summary(options: argparse.Namespace, families: tuple[str, ...]) -> Summary:
    """The sums to add to: those of the file, if it is there."""
    if options.summary is None or options.seed is not None:
        return Summary()
    run = {"commit": commit_of_tree(), "families": list(families), "servers": options.servers, "first": options.first}
    if options.old_defect is not None:
        run["old_defect"] = options.old_defect
    return Summary.load(options.summary, run) if options.summary.exists() else Summary(run)


def _jobs(options: argparse.Namespace, families: tuple[str, ...], next_seed: int | None) -> list[Job]:
    """What is left to do; those that failed once come first, and only in the first call of a run."""
    defect = options.old_defect
    if options.seed is not None:
        return [Job(options.seed, families, options.servers, in_detail=options.detail, old_defect=defect)]
    end = options.first + options.seeds
    jobs = [
        Job(seed, families, options.servers, next_seed=seed + 1, old_defect=defect)
        for seed in range(options.first if next_seed is None else next_seed, end)
    ]
    if next_seed is None and defect is None:
        again = [Job(seed, (family,), options.servers) for seed, family in regression_seeds() if family in families]
        if again:
            again[-1] = again[-1]._replace(next_seed=options.first)
        jobs = again + jobs
    return jobs


def _show_failure(outcome: Outcome) -> None:
    if outcome.violations:
        first = outcome.violations[0]
        print(f"seed {outcome.seed} ({outcome.family}): {first.kind}: {first.text}")
        sys.stdout.writelines(f"    {line}\n" for line in outcome.trace[-last_lines:])
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
