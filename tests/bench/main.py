"""Implements ``scripts/bench``: chooses the cases, runs them and writes the document of figures.

usage: scripts/bench [spark] [options]    both directions beside the ceilings and Kafka, latency, idle, commits, memory
       scripts/bench layers [options]     CPU seconds of every process for one write and one read
       scripts/bench compare [options]    rates and CPU seconds a GB beside Kafka, or beside another commit
Progress and tables go to stderr, one JSON document to stdout (and to --out FILE).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench import throughput
from tests.bench.against import THIS, measure_against
from tests.bench.ceilings import redis_bytes_per_second
from tests.bench.commit_times import CommitTimes
from tests.bench.comparison import CASES as comparison_cases
from tests.bench.comparison import comparison
from tests.bench.figures import Result, beside_ours, shares
from tests.bench.idle import Idle
from tests.bench.latency import Latency
from tests.bench.layers import Layers
from tests.bench.picture import picture
from tests.bench.rig import Rig, running_rig, say
from tests.bench.tables import layer_tables, spark_tables
from tests.support.maven import NotAvailable

SIZED_CASES: Final = (*throughput.CEILINGS, *throughput.CASES)
SPARK_CASES: Final = (*SIZED_CASES, "latency", "idle", "commit")
LAYER_CASES: Final = ("write", "read")


def main() -> None:
    arguments = sys.argv[1:]
    command = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "spark"
    if command not in BENCHES:
        raise SystemExit(f"scripts/bench: no bench '{command}'; there are: {' '.join(BENCHES)}")
    parser, known_cases, run = BENCHES[command]
    args = parser().parse_args(arguments)
    unknown = set(args.cases) - set(known_cases)
    if unknown:
        raise SystemExit(f"scripts/bench {command}: no case '{sorted(unknown)[0]}'; --help names them")
    document: Result = {"command": ["scripts/bench", *sys.argv[1:]], "machine": machine()}
    try:
        run(args, document)
    except NotAvailable as error:
        raise SystemExit(f"scripts/bench: {error}") from error
    finally:  # A long run that fails has measured something too.
        text = json.dumps(document, indent=2)
        if args.out:
            args.out.write_text(text + "\n")
        print(text)


def run_spark(args: argparse.Namespace, document: Result) -> None:
    """Fills the document as it goes."""
    with running_rig(args.tier2, with_kafka=args.kafka, variants=args.variants) as rig:
        redis = redis_bytes_per_second(rig.folder / "raw-redis") / 1e6
        say(f"raw Redis, 1 MiB entries: {redis:,.0f} MB/s")
        document["redis_megabytes_per_second"] = round(redis, 1)
        document["results"] = []
        throughputs(rig, args, document["results"])
        document["shares"] = shares(document["results"], redis)
        document["variants"] = beside_ours(document["results"])
        if "latency" in args.cases:
            document["latency"] = Latency(rig, args.rate, args.seconds, args.runs).measure()
        if "idle" in args.cases:
            document["idle"] = Idle(rig, args.seconds, args.runs).measure()
        if "commit" in args.cases:
            document["commit"] = CommitTimes(rig, commit_pairs(args.commit_counts), args.cold_s).measure()
    say(spark_tables(document))


def throughputs(rig: Rig, args: argparse.Namespace, results: list[Result]) -> None:
    measured = throughput.Throughput(rig, args.scale, args.runs)
    for size_bytes in args.sizes:
        for case in args.cases:
            if case in SIZED_CASES:
                results += measured.measure(case, size_bytes)
        measured.drop_filled()


def run_layers(args: argparse.Namespace, document: Result) -> None:
    """Fills the document as it goes."""
    results = document["layers"] = []
    with running_rig(args.tier2, with_kafka=args.kafka) as rig:
        layers = Layers(rig, args.scale)
        for size_bytes in args.sizes:
            for case in args.cases:
                results += layers.measure(case, size_bytes)
            layers.drop_filled()
    say(layer_tables(results))


def run_compare(args: argparse.Namespace, document: Result) -> None:
    """Fills the document as it goes, with ``--against`` at the end."""
    results: list[Result] = []
    document["results"] = results
    if args.against:
        results += measure_against(args.against, same_options(args), args.runs)
        say(comparison(results, THIS, args.against))
        return
    with running_rig(args.tier2, with_kafka=args.kafka) as rig:
        throughputs(rig, args, results)
    say(comparison(results, "ours", "kafka"))
    if args.picture:
        args.picture.write_text(picture(results, "kafka"))


def same_options(args: argparse.Namespace) -> list[str]:
    """The options of one run of ``spark`` that measures the same."""
    sizes, cases = ",".join(map(str, args.sizes)), ",".join(args.cases)
    return ["--sizes", sizes, "--cases", cases, "--scale", str(args.scale), "--tier2", args.tier2]


def commit_pairs(counts: list[int]) -> list[tuple[int, int]]:
    """(tasks, segments): tasks grow on four segments, then segments grow under four tasks."""
    grown = [(count, 4) for count in counts] + [(4, count) for count in counts]
    return list(dict.fromkeys(grown))


def machine() -> Result:
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def spark_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench spark", description=f"Cases: {', '.join(SPARK_CASES)}.")
    add = parser.add_argument
    _common(parser, SPARK_CASES)
    add("--runs", type=_positive, default=3, help="measured runs of each case; medians are reported")
    add("--no-kafka", dest="kafka", action="store_false", help="without Kafka (needs no Maven)")
    add_variant = functools.partial(add, dest="variants", action="append_const", default=[])
    add_variant("--tls", const="tls", help="the same beside it over TLS, on services of its own")
    add_variant("--tcp", const="tcp", help="the same beside it without the store's Unix socket, as from other machines")
    add_variant("--three-redis", const="three-redis", help="the same beside it on three Redis servers, likewise")
    add_variant("--file", const="file", help="the same beside it with Tier 1 in local files, likewise")
    add("--rate", type=_positive, default=1_000, help="latency: events a second")
    add("--seconds", type=_positive, default=60, help="latency, idle: how long each run is, after 10 s")
    add(
        "--commit-counts", type=_numbers, default=[1, 4, 16, 64], help="commit: tasks, and segments (default 1,4,16,64)"
    )
    add("--cold-s", type=float, default=90.0, help="commit: the pause before the last batch")
    return parser


def layers_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench layers", description=f"Cases: {', '.join(throughput.CASES)}.")
    _common(parser, LAYER_CASES)
    parser.add_argument("--kafka", action="store_true", help="the same for Kafka (needs Maven)")
    return parser


def compare_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench compare", description=f"Cases: {', '.join(throughput.CASES)}.")
    _common(parser, comparison_cases)
    add = parser.add_argument
    add("--runs", type=_positive, default=3, help="measured runs of each case; medians are reported")
    add("--no-kafka", dest="kafka", action="store_false", help="without Kafka (needs no Maven)")
    add("--against", metavar="COMMIT", help="beside this commit, in turn, in a worktree of its own, without Kafka")
    add("--picture", type=Path, help="draw the rates beside Kafka's into this file, as an SVG")
    return parser


def _common(parser: argparse.ArgumentParser, cases: tuple[str, ...]) -> None:
    add = parser.add_argument
    add("--sizes", type=_numbers, default=[100, 1_000, 10_000], help="event sizes in bytes (default 100,1000,10000)")
    add("--cases", type=lambda text: text.split(","), default=list(cases), help=f"default {','.join(cases)}")
    add("--scale", type=float, default=1.0, help="share of the usual number of events")
    add("--tier2", default="dir", choices=("dir", "minio"))
    add("--out", type=Path, help="write the document into this file too")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _numbers(text: str) -> list[int]:
    return [_positive(item) for item in text.split(",")]


Parser = Callable[[], argparse.ArgumentParser]
Run = Callable[[argparse.Namespace, Result], None]
BENCHES: Final[dict[str, tuple[Parser, tuple[str, ...], Run]]] = {
    "spark": (spark_parser, SPARK_CASES, run_spark),
    "layers": (layers_parser, throughput.CASES, run_layers),
    "compare": (compare_parser, throughput.CASES, run_compare),
}
"""The parser of each command, the cases that it takes, and what runs them."""


if __name__ == "__main__":
    main()
