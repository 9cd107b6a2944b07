"""Measures micro-batch latency: from the writer's stamp to the end of the event's batch, commit included."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.figures import Result, medians, spread
from tests.bench.rig import Rig, say
from tests.bench.sides import Side
from tests.bench.stamps import BatchEnd, batch_time_s, joined, waits_ms
from tests.bench.watch import Observed

event_bytes: Final = 100
warm_s: Final = 10
query_time_max_s: Final = 120.0
poll_s: Final = 0.1


class Latency:
    """A query without pause between its batches reads what a process of its own writes at a steady rate."""

    def __init__(self, rig: Rig, rate: int, seconds: int, runs: int) -> None:
        self._rig = rig
        self._rate = rate
        self._seconds = seconds
        self._runs = runs

    def measure(self) -> list[Result]:
        """One result for each side, with every run in it; run n of ours is followed by run n of Kafka's."""
        found: dict[str, list[Result]] = {side.name: [] for side in self._rig.sides}
        for _ in range(self._runs):
            for side in self._rig.sides:
                run = self._run(side)
                found[side.name].append(run)
                say(f"latency {side.name:<6} p50 {run['ms']['p50']:>7,.1f} ms  p99 {run['ms']['p99']:>7,.1f} ms")
        return [self._result(side, runs) for side, runs in found.items()]

    def _result(self, side: str, runs: Sequence[Result]) -> Result:
        return {
            "side": side,
            "events_per_second": self._rate,
            "seconds": self._seconds,
            "event_bytes": event_bytes,
            "p50_ms": statistics.median(run["ms"]["p50"] for run in runs),
            "p99_ms": statistics.median(run["ms"]["p99"] for run in runs),
            "runs": list(runs),
        }

    def _run(self, side: Side) -> Result:
        target = side.new_target("latency")
        self._rig.watch.settle()
        with running_query(self._rig, side, target) as query, Observed(self._rig.watch) as observed:
            written = self._write(side, target)
            wait_until(lambda: rows_taken(query) >= written["events"], query)
        progress = [json.loads(item.json) for item in query.recentProgress if item.numInputRows]
        run = self._figures(side, target, progress, observed) | {"durable_ms": written["durable_ms"]}
        side.drop(target)
        return run

    def _write(self, side: Side, target: str) -> Result:
        """The figures that the writer prints at its end."""
        given = [side.name, side.address, target, self._rate, warm_s + self._seconds, event_bytes]
        command = [sys.executable, "-m", "tests.bench.latency_writer", *map(str, given)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told: Result = json.loads(done.stdout)
        return told

    def _figures(self, side: Side, target: str, progress: Sequence[Mapping[str, Any]], observed: Observed) -> Result:
        batches = [BatchEnd(batch_time_s(item), side.batch_positions(item, target)) for item in progress]
        waits = waits_ms(joined(side.stamped_events(self._rig.spark, target), batches), warm_s)
        return {
            "events": len(waits),
            "batches": len(batches),
            "ms": spread(waits),
            # Where a batch's time goes, as Spark tells it.
            "batch_ms": medians([item["durationMs"] for item in progress], 0),
            "cores": {name: round(value / observed.wall_s, 3) for name, value in observed.cpu_s.items()},
            "other_cores": observed.other_cores,  # The writer is among them.
            **observed.memory.as_json(),
        }


@contextmanager
def running_query(rig: Rig, side: Side, target: str) -> Iterator[StreamingQuery]:
    """Runs a query without pause between its batches over a target, from the end of its first one on."""
    frame = side.read(rig.spark.readStream, target, full=True)
    checkpoint = rig.folder / f"checkpoint-{time.time_ns()}"
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        wait_until(lambda: query.lastProgress is not None, query)
        yield query
    finally:
        query.stop()
    shutil.rmtree(checkpoint)


def rows_taken(query: StreamingQuery) -> int:
    return sum(item.numInputRows for item in query.recentProgress)


def wait_until(done: Callable[[], bool], query: StreamingQuery) -> None:
    """Until ``done()``; raises what the query raised, or ``TimeoutError``."""
    deadline_s = time.monotonic() + query_time_max_s
    while not done():
        failure = query.exception()
        if failure is not None:
            raise failure
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the query did not get there within {query_time_max_s:.0f} s: {query.status}")
        time.sleep(poll_s)
