"""Implements ``scripts/drill faults``: hurts a cluster in each way, and shows who told of it, and when."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from pravega_common.errors import ConfigurationError
from pravega_spark.standalone.binaries import find_minio
from tests.drills.faults.faults import FAULTS
from tests.drills.faults.run import run
from tests.drills.faults.table import markdown


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/drill faults", description=__doc__)
    parser.add_argument("--faults", default="", help="only these, separated by commas")
    parser.add_argument("--tier2", choices=("minio", "dir"), help="default: MinIO if it is installed")
    parser.add_argument("--no-doctor", action="store_true", help="do not ask pravega-spark doctor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    args = parser.parse_args(arguments)
    unknown = [name for name in filter(None, args.faults.split(",")) if name not in FAULTS]
    if unknown:
        parser.error(f"no fault '{unknown[0]}'; there are: {', '.join(FAULTS)}")
    return args


def default_tier2() -> str:
    try:
        find_minio()
    except ConfigurationError:
        return "dir"
    return "minio"


def main() -> int:
    args = parse(sys.argv[1:])
    console = Console()
    if args.list:
        for fault in FAULTS.values():
            console.print(f"{fault.name:<22} {fault.what}")
        return 0
    names = list(filter(None, args.faults.split(","))) or list(FAULTS)
    with tempfile.TemporaryDirectory(prefix="pravega-faults-drill-") as folder:
        result = run(
            Path(folder),
            [FAULTS[name] for name in names],
            args.tier2 or default_tier2(),
            asks_doctor=not args.no_doctor,
            tell=lambda line: console.print(f"  {line}", markup=False),
        )
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=2))
    print(markdown(result.rows))
    for tally in result.tallies:
        console.print(f"{tally}", markup=False)
    console.print("[bold green]all told" if result.good else f"[bold red]not as promised {result.failure}")
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
