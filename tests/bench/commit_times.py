"""Times the sink's commit as tasks and segments grow, warm and after a pause.

Commit phase only. Three clocks: the call that decides the batch, the whole ``commit`` of the sink (decision, then until
readers see it), and the phase as Spark has it, from the end of the tasks until the batch is done, which includes the
Python worker that Spark asks for it.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from tests.bench import workload
from tests.bench.figures import Result, spread
from tests.bench.latency import wait_until
from tests.bench.rig import Rig, say
from tests.bench.stamps import batch_time_s
from tests.bench.watch import Memory, Observed

events_per_batch: Final = 6_400
event_bytes: Final = 100
batches_unmeasured: Final = 2
batches_measured: Final = 10
trigger: Final = "200 milliseconds"
"""Queries of all sizes wait side by side; only one has something to do at a time."""
CLOCKS: Final = ("decision_ms", "readable_ms", "commit_ms", "phase_ms", "prepare_ms", "batch_ms")


@dataclass
class Fed:
    """A query that gets one file a batch."""

    tasks: int
    segments: int
    stream: str
    folder: Path
    query: StreamingQuery
    batches: list[Result] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)


class CommitTimes:
    """``pairs``: (tasks, segments)."""

    def __init__(self, rig: Rig, pairs: Sequence[tuple[int, int]], cold_s: float) -> None:
        self._rig = rig
        self._pairs = pairs
        self._cold_s = cold_s
        self._numbers = itertools.count()
        self._folder = rig.folder / "commit-times"
        self._events = self._one_file()

    def measure(self) -> list[Result]:
        """One result for each pair."""
        made: list[Fed] = []
        try:
            for tasks, segments in self._pairs:
                made.append(self._start(tasks, segments))
            for fed in made:
                self._rig.watch.settle()
                with Observed(self._rig.watch) as observed:
                    for _ in range(batches_unmeasured + batches_measured):
                        self._feed(fed)
                fed.memory = observed.memory
                del fed.batches[:batches_unmeasured]
            say(f"commit times: a pause of {self._cold_s:.0f} s")
            time.sleep(self._cold_s)
            cold = [self._feed(fed) for fed in made]
        finally:
            for fed in made:
                fed.query.stop()
        results = [self._result(fed, last) for fed, last in zip(made, cold, strict=True)]
        for fed in made:
            self._rig.ours.drop(fed.stream)
        return results

    def _one_file(self) -> Path:
        written = self._folder / "events"
        frame = workload.generated(self._rig.spark, events_per_batch, event_bytes)
        frame.coalesce(1).write.parquet(str(written))
        return next(written.glob("*.parquet"))

    def _start(self, tasks: int, segments: int) -> Fed:
        stream = self._rig.ours.new_target(f"commit-{tasks}-{segments}", segments)
        folder = self._folder / stream
        folder.mkdir()
        source = self._rig.spark.readStream.schema("routing_key string, event binary").parquet(str(folder))
        writer = self._rig.ours.writer(source.repartition(tasks).writeStream, stream).format("pravega-timed")
        checkpoint = self._folder / f"checkpoint-{stream}"
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=trigger).start()
        return Fed(tasks, segments, stream, folder, query)

    def _feed(self, fed: Fed) -> Result:
        """One file, one batch; returns its clocks, which are kept too."""
        number = next(self._numbers)
        partial = self._folder / f"{number}.partial"
        shutil.copyfile(self._events, partial)
        before = len(_with_rows(fed.query))
        partial.rename(fed.folder / f"{number}.parquet")
        wait_until(lambda: len(_with_rows(fed.query)) > before, fed.query)
        clocks = self._clocks(fed, _with_rows(fed.query)[-1])
        fed.batches.append(clocks)
        return clocks

    def _clocks(self, fed: Fed, progress: Result) -> Result:
        record = _record(self._rig.commit_records / f"{fed.stream}.jsonl", progress["batchId"])
        durations = progress["durationMs"]
        # What Spark does after the sink's commit: its own commit log.
        sink_done_s = batch_time_s(progress) - durations.get("commitOffsets", durations.get("commitBatch", 0)) / 1000
        return {
            "decision_ms": record["decision_s"] * 1000,
            "readable_ms": record["readable_s"] * 1000,
            "commit_ms": record["call_s"] * 1000,
            "prepare_ms": record["prepare_s"] * 1000,
            "phase_ms": (sink_done_s - last_job_end_s(self._rig.spark, str(fed.query.runId))) * 1000,
            "batch_ms": durations["triggerExecution"],
            "transaction_segments": record["segments"],
        }

    def _result(self, fed: Fed, cold: Result) -> Result:
        warm = {clock: spread([batch[clock] for batch in fed.batches[:batches_measured]]) for clock in CLOCKS}
        say(
            f"commit {fed.tasks:>3} tasks {fed.segments:>3} segments: warm {warm['commit_ms']['p50']:>7,.1f} ms,"
            f" after {self._cold_s:.0f} s {cold['commit_ms']:>7,.1f} ms"
        )
        return {
            "tasks": fed.tasks,
            "segments": fed.segments,
            "transaction_segments": cold["transaction_segments"],
            "warm": warm,
            "pause_s": self._cold_s,
            "cold": {clock: round(cold[clock], 1) for clock in CLOCKS},
            **fed.memory.as_json(),
        }


def _with_rows(query: StreamingQuery) -> list[Result]:
    return [json.loads(item.json) for item in query.recentProgress if item.numInputRows]


def _record(file: Path, batch_id: int) -> Result:
    """The sink's record of this batch."""
    for line in reversed(file.read_text().splitlines()):
        record: Result = json.loads(line)
        if record["batch"] == batch_id:
            return record
    raise RuntimeError(f"the sink left no record of batch {batch_id} in {file}")


def last_job_end_s(spark: Any, run_id: str) -> float:
    """The end of the last Spark job of a query's run, in seconds since 1970."""
    context = spark.sparkContext
    job_ids = context.statusTracker().getJobIdsForGroup(run_id)
    # PySpark gives no public way to the JVM's status store.
    completed = context._jsc.sc().statusStore().job(max(job_ids)).completionTime()
    return float(completed.get().getTime()) / 1000
