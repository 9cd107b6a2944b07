"""Implements ``scripts/drill failover``: one of two controllers and one of two stores killed in turn, under load."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.controllers.failover import VICTIMS, FailoverResult, run
from tests.drills.store.main import percentile


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill failover", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of killing (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the pauses between two kills")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")
    args = parser.parse_args(arguments)
    if args.minutes <= 0:
        parser.error(f"--minutes {args.minutes}: must be above 0")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()
    with tempfile.TemporaryDirectory(prefix="pravega-failover-drill-") as folder:
        result = run(
            Path(folder) / "cluster",
            len(VICTIMS),
            args.minutes * 60,
            args.seed,
            lambda line: console.print(f"  {line}", markup=False, highlight=False),
        )
    show(console, result)
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=2))
    console.print("[bold green]as promised" if result.good else "[bold red]not as promised")
    return 0 if result.good else 1


def show(console: Console, result: FailoverResult) -> None:
    """Times without an owner, as clients met them, and counts."""
    title = f"{result.kills} kills: seconds until clients were answered again"
    table = Table("victim", "kills", "first ack p50", "p99", "stream made, sealed, deleted p50", "p99", title=title)
    for names in (VICTIMS[::2], VICTIMS[1::2]):
        acks_s = [value for name in names for value in result.acks_s[name]]
        rounds_s = [value for name in names for value in result.rounds_s[name]]
        if acks_s and rounds_s:
            values = [percentile(of, share) for of in (acks_s, rounds_s) for share in (0.5, 0.99)]
            table.add_row(", ".join(names), str(len(rounds_s)), *(f"{value:.2f}" for value in values))
    console.print(table)
    for name, value in vars(result.tally).items():
        console.print(f"{name.replace('_', ' '):<14} {value}")
    console.print(f"transactions   {result.transactions}")
    console.print(f"streams        {result.streams}, each made, sealed and deleted")
    console.print(f"client errors  {len(result.errors)}")
    for error in result.errors[:20]:
        console.print(f"  {error}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
