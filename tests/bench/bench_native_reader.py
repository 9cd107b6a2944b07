"""Reads one stream by our source, with and without the native reader, and a topic of the same by Kafka's connector.

``python -m tests.bench.bench_native_reader``. All read in turn, in one session, what the store has in its cache. That
they read the same is checked first, by a sum over the events' hashes. Tables go to stderr, JSON to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Final

from pravega_spark.jvm.jar import jar_path
from tests.bench import workload
from tests.bench.comparison import beside_kafka
from tests.bench.figures import Result
from tests.bench.main import machine
from tests.bench.rig import Rig, running_rig, say
from tests.bench.throughput import Job, Measured, Throughput, told

NATIVE: Final = "native"
_OPTION: Final = {"native_reader": "true"}


def main() -> None:
    args = _arguments()
    results: list[Result] = []
    document = {"machine": machine(), "results": results}
    try:
        with running_rig("dir", with_kafka=args.kafka, jars=[jar_path()]) as rig:
            for case, size_bytes in product(args.cases, args.sizes):
                results += _measure(rig, case, size_bytes, args.scale, args.runs)
        say(beside_kafka("Reads", results))
    finally:  # A long run that fails has measured something too.
        text = json.dumps(document, indent=2)
        if args.out:
            args.out.write_text(text + "\n")
        print(text)


def _measure(rig: Rig, case: str, size_bytes: int, scale: float, runs: int) -> list[Result]:
    events = workload.events_per_run(size_bytes, scale)
    throughput = Throughput(rig, scale, runs)
    jobs: dict[str, Job] = {}
    for side in rig.sides:
        jobs[side.name] = throughput.reading(case, side, events, size_bytes)
        if side is rig.ours:
            jobs[NATIVE] = throughput.reading(case, side, events, size_bytes, _OPTION)
    _check_same(rig, throughput.filled(rig.ours, events, size_bytes))
    found = {name: Measured(case, name, events, size_bytes) for name in jobs}
    for run in range(runs + 1):
        for name, job in jobs.items():
            observed = throughput.observed(job)
            if run:
                found[name].add(observed, {})
    throughput.drop_filled()
    for measured in found.values():
        say(told(measured))
    return [measured.as_json() for measured in found.values()]


def _check_same(rig: Rig, target: str) -> None:
    """That both readers of ours give the same events, in whatever order."""
    readers = {"ours": rig.spark.read, NATIVE: rig.spark.read.options(**_OPTION)}
    frames = {name: rig.ours.read(reader, target, full=False) for name, reader in readers.items()}
    sums = {
        name: tuple(frame.selectExpr("count(*)", "sum(cast(xxhash64(event) as decimal(20, 0)))").first() or ())
        for name, frame in frames.items()
    }
    if len(set(sums.values())) != 1:
        raise RuntimeError(f"the readers differ: {sums}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_native_reader")
    add = parser.add_argument
    add("--sizes", type=lambda text: [int(item) for item in text.split(",")], default=[100, 1_000, 10_000])
    add("--cases", type=lambda text: text.split(","), default=["read", "stream-read"], help="of read and stream-read")
    add("--runs", type=int, default=3, help="measured runs of each; medians are reported")
    add("--scale", type=float, default=1.0, help="share of the usual number of events")
    add("--no-kafka", dest="kafka", action="store_false", help="without Kafka (needs no Maven)")
    add("--out", type=Path, help="write the document into this file too")
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
