"""Implements ``scripts/drill fuzz``: mutated frames and requests by a user and by a stranger, and what became of it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.drills.fuzz.run import FuzzResult, run, slower_factor_max
from tests.drills.fuzz.watch import MiB
from tests.drills.store.main import percentile

answers_shown: Final = 16


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="mutated frames (default 1,000,000)")
    parser.add_argument("--requests", type=int, default=200_000, help="mutated gRPC and REST requests, half each")
    parser.add_argument("--seed", type=int, default=1, help="of all that is sent")
    parser.add_argument(
        "--quiet", type=float, default=20.0, metavar="S", help="seconds in the quiet, and again beside busy peers"
    )
    parser.add_argument(
        "--refusals-per-s",
        type=int,
        default=0,
        metavar="N",
        help="the share of a host that is refused; 0: as services are",
    )
    parser.add_argument("--folder", type=Path, help="keep the cluster's folder there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")
    args = parser.parse_args(arguments)
    if min(args.frames, args.requests, args.refusals_per_s) < 0 or args.quiet <= 0:
        parser.error("--frames, --requests and --refusals-per-s must be 0 or more, and --quiet above 0")
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()

    def tell(line: str) -> None:
        console.print(f"  {line}", markup=False, highlight=False)

    with tempfile.TemporaryDirectory(prefix="pravega-fuzz-drill-") as folder:
        result = run(
            args.folder or Path(folder), args.frames, args.requests, args.seed, args.quiet, tell, args.refusals_per_s
        )
    show(console, result)
    if args.json:
        args.json.write_text(
            json.dumps(
                {**asdict(result), "slower": result.slower, "slower_than_burdened": result.slower_than_burdened},
                indent=2,
            )
        )
    console.print("[bold green]as promised" if result.good else "[bold red]not as promised")
    return 0 if result.good else 1


def show(console: Console, result: FuzzResult) -> None:
    """Counts by peer, waits of the good client, memory, and what must not be."""
    table = Table(
        "peer", "handled", "cut off", "connections", "answers", title=f"seed {result.seed}, {result.seconds:.0f} s"
    )
    for name, peers in (("frames", result.frames), ("gRPC", result.grpc), ("REST", result.rest)):
        for peer, counts in peers.items():
            ordered = sorted(counts.answers.items(), key=lambda item: -item[1])[:answers_shown]
            answers = ", ".join(f"{answer} {count}" for answer, count in ordered)
            table.add_row(f"{name}, {peer}", f"{counts.handled}", f"{counts.cut_off}", f"{counts.connections}", answers)
    console.print(table)
    for peers in (result.grpc, result.rest):
        for peer, counts in peers.items():
            for reason, count in counts.reasons.items():
                console.print(f"{peer}, {count} ×: {reason}", markup=False, highlight=False)
    for name, waits_s in (
        ("in the quiet", result.quiet_s),
        ("beside busy peers that send nothing", result.burdened_s),
        ("under attack", result.attacked_s),
    ):
        p50, p99 = (percentile(waits_s, share) * 1_000 for share in (0.5, 0.99))
        console.print(f"good client {name}: {len(waits_s)} writes, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    console.print(f"peers {'had cores of their own' if result.cores_apart else 'shared the cores of the cluster'}")
    verdict = "within" if result.slower <= slower_factor_max else "above"
    console.print(f"p99 under attack {result.slower:.1f} x that in the quiet, {verdict} {slower_factor_max:.0f} x")
    console.print(f"p99 under attack {result.slower_than_burdened:.1f} x that beside busy peers that send nothing")
    for name, before in result.memory_before.items():
        console.print(f"memory of {name}: {before // MiB} MiB before, {result.memory_most[name] // MiB} MiB at most")
    for problem in result.problems:
        console.print(f"  {problem}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
