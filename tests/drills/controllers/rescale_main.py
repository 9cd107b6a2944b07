"""Implements ``scripts/drill rescale``: a stream scaled up and down by hand and by load, under its clients."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.controllers.rescale import RescaleResult, run, scales_across


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill rescale", description=__doc__)
    parser.add_argument("--scales", type=int, default=50, help="scale events of each run (default 50)")
    parser.add_argument("--by", choices=("hand", "load"), help="only this run")
    parser.add_argument("--seed", type=int, default=1, help="of the scales by hand")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    args = parser.parse_args(arguments)
    if args.scales <= scales_across:
        parser.error(f"--scales {args.scales}: transactions stay open across {scales_across}, so it must be more")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()
    results: dict[str, RescaleResult] = {}
    for by in [args.by] if args.by else ["hand", "load"]:
        console.print(f"{args.scales} scale events by {by}")
        with tempfile.TemporaryDirectory(prefix="pravega-rescale-drill-") as folder:
            results[by] = run(
                Path(folder) / "cluster",
                args.scales,
                args.seed,
                is_by_load=by == "load",
                tell=lambda line: console.print(f"  {line}", markup=False, highlight=False),
            )
    show(console, results)
    if args.json:
        args.json.write_text(json.dumps({by: asdict(result) for by, result in results.items()}, indent=2))
    good = all(result.good for result in results.values())
    console.print("[bold green]as promised" if good else "[bold red]not as promised")
    return 0 if good else 1


def show(console: Console, results: Mapping[str, RescaleResult]) -> None:
    """Counts by run: in the stream in the end, and as the group of readers read it meanwhile."""
    table = Table("by", "counted", "events", "lost", "twice", "disordered", "phantom", "torn")
    for by, result in results.items():
        across = sum(count >= scales_across for count in result.across)
        console.print(
            f"by {by}: {len(result.layouts)} scale events, {min(result.layouts)} to {max(result.layouts)} segments, "
            f"{result.epochs} epochs, {across} transactions open across {scales_across} scale events or more"
        )
        for counted, tally in (("stored", result.stored), ("read", result.read)):
            values = (tally.acked, tally.lost, tally.duplicated, tally.out_of_order, tally.phantom, tally.torn)
            table.add_row(by, counted, *map(str, values))
    console.print(table)
    errors = [error for result in results.values() for error in result.errors]
    console.print(f"client errors  {len(errors)}")
    for error in errors[:20]:
        console.print(f"  {error}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
