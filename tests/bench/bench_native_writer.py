"""Writes the same rows by our sink, by a native writer in Spark's JVM, and by Kafka's connector.

``python -m tests.bench.bench_native_writer``. The native writer is a prototype (``native_writer/README.md``): its
transactions are begun and committed here, one for each task, within the measured time. Tables go to stderr, JSON to
stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from pravega_common.model.transactions import NewTransaction, TransactionState
from pravega_common.names import transaction_segment_name
from tests.bench import workload
from tests.bench.comparison import beside_kafka
from tests.bench.figures import Result
from tests.bench.main import machine
from tests.bench.native_writer.jar import built_jar
from tests.bench.rig import Rig, running_rig, say
from tests.bench.sides import SCOPE
from tests.bench.throughput import Job, Measured, Throughput, told
from tests.bench.watch import Observed
from tests.support.eventually import eventually_blocking

FORMAT: Final = "pravegabench.NativeWriter"
NATIVE: Final = "native"
lease_ms: Final = 60_000


def main() -> None:
    args = _arguments()
    results: list[Result] = []
    with ExitStack() as stack:
        jar = built_jar(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-native-"))))
        rig = stack.enter_context(running_rig("dir", with_kafka=args.kafka, jars=[jar]))
        for size_bytes in args.sizes:
            results += _measure(rig, size_bytes, args.scale, args.runs)
    say(beside_kafka("Batch writes", results))
    print(json.dumps({"machine": machine(), "results": results}, indent=2))


def _measure(rig: Rig, size_bytes: int, scale: float, runs: int) -> list[Result]:
    events = workload.events_per_run(size_bytes, scale)
    throughput = Throughput(rig, scale, runs)
    found = {name: Measured("write", name, events, size_bytes) for name in (*(s.name for s in rig.sides), NATIVE)}
    for run in range(runs + 1):
        for name, measured in found.items():
            observed = _run(rig, throughput, name, events, size_bytes, checks=run == 0)
            if run:
                measured.add(observed, {})
    for measured in found.values():
        say(told(measured))
    return [measured.as_json() for measured in found.values()]


def _run(rig: Rig, throughput: Throughput, name: str, events: int, size_bytes: int, *, checks: bool) -> Observed:
    is_native = name == NATIVE
    side = rig.ours if is_native else next(item for item in rig.sides if item.name == name)
    target = side.new_target(f"written-{size_bytes}")
    job: Job = partial(_write, rig, target, events, size_bytes)
    if not is_native:
        job = throughput.writing("write", side, target, events, size_bytes)
    observed = throughput.observed(job)
    if checks and is_native:
        _check(rig, target, events)
    side.drop(target)
    return observed


def _write(rig: Rig, target: str, events: int, size_bytes: int) -> None:
    controller = rig.ours.client.controller
    begun = [controller.create_transaction(SCOPE, target, lease_ms) for _ in range(workload.partitions)]
    store = rig.cluster.ready()["segment_stores"][0]
    options = {"tasks": "\n".join(_line(one) for one in begun), "port": store.rpartition(":")[2]}
    workload.generated(rig.spark, events, size_bytes).write.format(FORMAT).options(**options).mode("append").save()
    for one in begun:
        controller.commit_transaction(SCOPE, target, one.transaction_id)
    for one in begun:
        eventually_blocking(partial(_is_committed, rig, target, one), "the commit")


def _is_committed(rig: Rig, target: str, one: NewTransaction) -> bool:
    state = rig.ours.client.controller.transaction_state(SCOPE, target, one.transaction_id)
    return state is TransactionState.COMMITTED


def _line(begun: NewTransaction) -> str:
    """The segments of one task, in the order of their keys."""
    return ";".join(
        f"{transaction_segment_name(item.name, begun.transaction_id)} {item.key_high}"
        for item in sorted(begun.segments, key=lambda item: item.key_low)
    )


def _check(rig: Rig, target: str, events: int) -> None:
    """That each row is there once."""
    frame = rig.ours.read(rig.spark.read, target, full=False)
    count, distinct = frame.selectExpr("count(*)", "count(distinct substring(event, 1, 16))").first() or (0, 0)
    if (count, distinct) != (events, events):
        raise RuntimeError(f"{events} events were written, {count} are there, {distinct} of them distinct")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_native_writer")
    add = parser.add_argument
    add("--sizes", type=lambda text: [int(item) for item in text.split(",")], default=[1_000, 10_000])
    add("--runs", type=int, default=3, help="measured runs of each; medians are reported")
    add("--scale", type=float, default=1.0, help="share of the usual number of events")
    add("--no-kafka", dest="kafka", action="store_false", help="without Kafka (needs no Maven)")
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
