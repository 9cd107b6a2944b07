"""Implements ``scripts/drill sink``: the whole crash matrix of the sink."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.drills.sink.bench import Bench, together_default, together_max
from tests.drills.sink.matrix import POINTS
from tests.drills.sink.report import Report
from tests.drills.sink.run_matrix import Row, run_matrix

few_runs = 20
"""Runs for which quicker JVMs are not worth their preparation."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill", description=__doc__)
    parser.add_argument("drill", choices=["sink"])
    parser.add_argument("--runs", type=int, default=1, help="runs of each point (default 1)")
    parser.add_argument(
        "--together",
        type=int,
        default=together_default,
        help=f"runs of a point that are hurt together (default {together_default}, at most {together_max})",
    )
    parser.add_argument("--points", default="", help="only these, separated by commas")
    parser.add_argument(
        "--at-least-once", action="store_true", help="with exactly_once=false: rows must come twice somewhere"
    )
    parser.add_argument(
        "--format", choices=["event", "record"], default="event", help="what the sink writes (default event)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result there, after every run")
    parser.add_argument("--list", action="store_true", help="print the points and stop")
    args = parser.parse_args(arguments)
    unknown = [name for name in filter(None, args.points.split(",")) if name not in POINTS]
    if unknown:
        parser.error(f"no point '{unknown[0]}'; there are: {', '.join(POINTS)}")
    if args.runs < 1:
        parser.error(f"--runs {args.runs}: must be at least 1")
    if not 1 <= args.together <= together_max:
        parser.error(f"--together {args.together}: must be from 1 to {together_max}")
    return args


def end_in_order(number: int, frame: object) -> None:
    """Ends the drill in order, and its processes with it."""
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, end_in_order)
    args = parse(sys.argv[1:])
    if args.list:
        for point in POINTS.values():
            print(f"{point.name:<24} {point.what}")
        return 0
    points = [POINTS[name] for name in args.points.split(",")] if args.points else list(POINTS.values())
    report = Report(args.json)
    with (
        tempfile.TemporaryDirectory(prefix="pravega-spark-drill-") as folder,
        Bench(
            Path(folder),
            exactly_once=not args.at_least_once,
            as_records=args.format == "record",
            together=args.together,
            shares_class_data=len(points) * args.runs > few_runs,
        ).running() as bench,
    ):
        rows = run_matrix(bench, points, args.runs, args.together, report.tell)
    promise = "at least once" if args.at_least_once else "exactly once"
    title = f"Sink crash matrix, {promise}{', records' * (args.format == 'record')}"
    report.table(rows, title)
    return verdict(rows, report, at_least_once=args.at_least_once)


def verdict(rows: list[Row], report: Report, *, at_least_once: bool) -> int:
    """0 if all is as promised; without transactions, the drill must also have seen rows twice."""
    repeated = sum(row.tally.duplicated for row in rows)
    if not all(row.good for row in rows):
        report.console.print("[bold red]not as promised")
        return 1
    if at_least_once and not repeated:
        report.console.print("[bold red]no row came twice: the drill would not see one")
        return 1
    report.console.print("[bold green]as promised")
    return 0


if __name__ == "__main__":
    sys.exit(main())
