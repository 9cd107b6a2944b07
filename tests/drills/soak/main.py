"""Implements ``scripts/drill soak``: a small cluster under a light load of every kind, and what grows meanwhile."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from pravega_spark.standalone.process import StandaloneProcess
from tests.drills.soak import samples
from tests.drills.soak.growth import Growth, growths, samples_min
from tests.drills.soak.load import SoakLoad

sample_period_s: Final = 20.0
minutes_min: Final = samples_min * sample_period_s / 60
ENVIRONMENT: Final = {
    "PRAVEGA_CONTROLLER_RETENTION__PERIOD_MS": "2000",
    "PRAVEGA_CONTROLLER_RETENTION__HISTORY_MS": "20000",
    "PRAVEGA_CONTROLLER_WATERMARKS__PERIOD_MS": "2000",
    "PRAVEGA_SEGMENT_STORE_TIER1__CHECKPOINT_OPERATIONS": "500",
    "PRAVEGA_SEGMENT_STORE_TIER1__PLOG_BYTES": str(4 << 20),
    "PRAVEGA_SEGMENT_STORE_TIER2__FLUSH_AGE_MS": "500",
    "PRAVEGA_SEGMENT_STORE_STORE__UNFLUSHED_BYTES_MAX": str(16 << 20),
    "PRAVEGA_SEGMENT_STORE_CACHE__BYTES_MAX": str(32 << 20),
    # Without keys of the cluster the drill may read the controller's own tables.
    "PRAVEGA_CONTROLLER_SECURITY__CLUSTER_KEY_FILE": "",
    "PRAVEGA_SEGMENT_STORE_SECURITY__CLUSTER_KEY_FILE": "",
}
"""Times and limits by which the records of hours come and go in minutes."""
containers: Final = 2


@dataclass
class SoakResult:
    """One run."""

    growths: list[Growth] = field(default_factory=list)
    rounds: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def growing(self) -> list[str]:
        return [growth.name for growth in self.growths if growth.grows]


def run(folder: Path, samples_wanted: int, period_s: float, tell: Callable[[str], None]) -> SoakResult:
    """Start a cluster and its load, take the samples, and compare."""
    taken: list[samples.Sample] = []
    cluster = StandaloneProcess(folder, containers=containers)
    try:
        cluster.start(ENVIRONMENT)
        with SoakLoad(cluster.controller_uri) as load:
            while len(taken) < samples_wanted:
                time.sleep(period_s)
                load.check()
                taken.append(samples.take(cluster))
                tell(json.dumps({name: round(value, 1) for name, value in taken[-1].items()}))
        rounds = {worker.name: worker.rounds for worker in load.workers}
        errors = [f"{worker.name}: {error}" for worker in load.workers for error in worker.errors]
        return SoakResult(growths(taken), rounds, errors)
    except BaseException:
        tell(cluster.log_tail())
        raise
    finally:
        cluster.stop()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load (default 30)")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write each sample there, one JSON object a line")
    args = parser.parse_args(arguments)
    if args.minutes < minutes_min:
        parser.error(f"--minutes {args.minutes:g}: must be {minutes_min:g} at least, for three samples of each third")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()

    def tell(line: str) -> None:
        if args.samples:
            with args.samples.open("a") as file:
                file.write(f"{line}\n")
        elif not line.startswith("{"):
            console.print(line, markup=False, highlight=False)

    with tempfile.TemporaryDirectory(prefix="pravega-soak-drill-") as folder:
        wanted = round(args.minutes * 60 / sample_period_s)
        result = run(Path(folder) / "cluster", wanted, sample_period_s, tell)
    show(console, result)
    return 1 if result.growing or result.errors else 0


def show(console: Console, result: SoakResult) -> None:
    table = Table("size", "first third", "middle", "last", "least of the middle", "of the last", "")
    for growth in result.growths:
        values = (growth.first, growth.middle, growth.last, growth.lowest_middle, growth.lowest_last)
        table.add_row(growth.name, *(f"{value:.1f}" for value in values), "grows" if growth.grows else "")
    console.print(table)
    for name, rounds in result.rounds.items():
        console.print(f"{rounds:>7} rounds of {name}")
    console.print(f"{len(result.errors):>7} client errors")
    for error in result.errors[:20]:
        console.print(f"  {error}", markup=False)
    growing = ", ".join(result.growing)
    console.print(f"[bold red]grows: {growing}" if growing else "[bold green]nothing grows")


if __name__ == "__main__":
    sys.exit(main())
