"""Implements ``scripts/drill store``: stores, Redis servers and Tier 2 hurt under load, and what is left counted."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.store.audit import Tally
from tests.drills.store.faults import FAULTS
from tests.drills.store.run import RunResult, run


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill store", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="runs; each inflicts every fault once (default 1)")
    parser.add_argument("--faults", default="", help="only these, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones count on")
    parser.add_argument("--redis-servers", type=int, choices=(1, 3), default=3, help="servers of Tier 1 (default 3)")
    parser.add_argument(
        "--everysec",
        action="store_true",
        help="control run: appendfsync everysec, power cuts only; the drill must show loss",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there, after every run")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    args = parser.parse_args(arguments)
    unknown = [name for name in filter(None, args.faults.split(",")) if name not in FAULTS]
    if unknown:
        parser.error(f"no fault '{unknown[0]}'; there are: {', '.join(FAULTS)}")
    if args.runs < 1:
        parser.error(f"--runs {args.runs}: must be at least 1")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()
    if args.list:
        for fault in FAULTS.values():
            console.print(f"{fault.name:<16} {fault.what}")
        return 0
    names = ["power-cut"] if args.everysec else list(filter(None, args.faults.split(","))) or list(FAULTS)
    results: list[RunResult] = []
    for number in range(args.runs):
        seed = args.seed + number
        console.print(f"run {number + 1} of {args.runs}, seed {seed}")
        with tempfile.TemporaryDirectory(prefix="pravega-store-drill-") as folder:
            result = run(
                Path(folder) / "cluster",
                [FAULTS[name] for name in names],
                seed,
                redis_servers=args.redis_servers,
                appendfsync="everysec" if args.everysec else "always",
                tell=lambda line: console.print(f"  {line}", markup=False),
            )
        results.append(result)
        console.print(f"  {result.tally}{'' if result.good else '  NOT AS PROMISED'}", markup=False)
        if args.json:
            args.json.write_text(json.dumps([asdict(one) for one in results], indent=2))
    show(console, results)
    return verdict(console, results, is_control=args.everysec)


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(console: Console, results: list[RunResult]) -> None:
    table = Table("fault", "times", "first ack p50", "p99", title="Time to first ack after a fault, seconds")
    for name in FAULTS:
        lists = [result.first_acks_s[name] for result in results if name in result.first_acks_s]
        values = [value for acks_s in lists for value in acks_s]
        if values:
            p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
            table.add_row(name, str(len(lists)), f"{p50:.2f}", f"{p99:.2f}")
    console.print(table)
    total = Tally()
    for result in results:
        total.add(result.tally)
    for name, value in vars(total).items():
        console.print(f"{name.replace('_', ' '):<14} {value}")
    console.print(f"client errors  {sum(result.client_errors for result in results)}")


def verdict(console: Console, results: list[RunResult], *, is_control: bool) -> int:
    """0 if all is as promised; of a control run, if it shows loss."""
    if is_control:
        shown = [result for result in results if result.tally.lost or result.tally.unseen or result.losses]
        console.print(f"{len(shown)} of {len(results)} control runs show loss, as they must")
        return 0 if shown else 1
    wrong = [result for result in results if not result.good]
    console.print("[bold red]not as promised" if wrong else "[bold green]as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
