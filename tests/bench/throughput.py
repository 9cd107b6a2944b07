"""Measures events a second, both directions, batch and streaming, ours and Kafka's in turn."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame

from tests.bench import workload
from tests.bench.figures import Result, medians, rates
from tests.bench.rig import Rig, say
from tests.bench.sides import Side
from tests.bench.watch import Memory, Observed

CEILINGS: Final = ("generate", "api-sink", "api-source")
CASES: Final = ("write", "read", "read-full", "stream-write", "stream-read", "stream-read-full")
warm_up_share: Final = 0.1
events_min: Final = 1_000
Job = Callable[[], None]


@dataclass
class Measured:
    """The runs of one case of one side."""

    case: str
    side: str
    events: int
    size_bytes: int
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[dict[str, float]] = field(default_factory=list)
    other_cores: list[float] = field(default_factory=list)
    stream_ms: list[dict[str, float]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    def add(self, observed: Observed, stream_ms: dict[str, float]) -> None:
        self.seconds.append(observed.wall_s)
        self.cpu_s.append(observed.cpu_s)
        self.other_cores.append(observed.other_cores)
        self.memory.raise_to(observed.memory)
        if stream_ms:
            self.stream_ms.append(stream_ms)

    def as_json(self) -> Result:
        return {
            "case": self.case,
            "side": self.side,
            "event_bytes": self.size_bytes,
            "events": self.events,
            **rates(self.events, self.size_bytes, self.seconds),
            "cpu_seconds": medians(self.cpu_s),
            "other_cores": self.other_cores,
            **({"stream_ms": medians(self.stream_ms, 0)} if self.stream_ms else {}),
            **self.memory.as_json(),
        }


class Throughput:
    """Each case makes one timed function a side; what it needs is made before, and dropped after."""

    def __init__(self, rig: Rig, scale: float, runs: int) -> None:
        self._rig = rig
        self._scale = scale
        self._runs = runs
        self._filled: dict[tuple[str, int, int], str] = {}
        self.stream_ms: dict[str, float] = {}
        """Times of the last streaming job: its batches, each of their phases, and the rest."""

    def measure(self, case: str, size_bytes: int) -> list[Result]:
        """One result for each side that has the case. Run n of ours is followed by run n of Kafka's."""
        events = workload.events_per_run(size_bytes, self._scale)
        sides: Sequence[Side | None] = [None] if case in CEILINGS else self._rig.sides
        found = [Measured(case, side.name if side else "spark", events, size_bytes) for side in sides]
        for run in range(self._runs + 1):
            count = events if run else max(events_min, int(events * warm_up_share))
            for side, measured in zip(sides, found, strict=True):
                observed = self._run(case, side, count, size_bytes)
                if run:
                    measured.add(observed, self.stream_ms)
        for measured in found:
            say(told(measured))
        return [measured.as_json() for measured in found]

    def drop_filled(self) -> None:
        """Give the disk space of what was read back."""
        for side in self._rig.sides:
            for key in [key for key in self._filled if key[0] == side.name]:
                side.drop(self._filled.pop(key))

    def _run(self, case: str, side: Side | None, events: int, size_bytes: int) -> Observed:
        job, end = self.job(case, side, events, size_bytes)
        observed = self.observed(job)
        end()
        return observed

    def observed(self, job: Job) -> Observed:
        """The cost of a job that begins when nothing is left of the one before."""
        self._rig.watch.settle()
        with Observed(self._rig.watch) as observed:
            job()
        return observed

    def job(self, case: str, side: Side | None, events: int, size_bytes: int) -> tuple[Job, Callable[[], None]]:
        """The timed job, ready to run, and the call that removes what it wrote."""
        self.stream_ms = {}
        if side is None:
            return self._ceiling(case, events, size_bytes), lambda: None
        if not case.endswith("write"):
            return self.reading(case, side, events, size_bytes), lambda: None
        target = side.new_target(f"{case}-{size_bytes}")
        return self.writing(case, side, target, events, size_bytes), lambda: side.drop(target)

    def _ceiling(self, case: str, events: int, size_bytes: int) -> Job:
        spark = self._rig.spark
        if case == "api-source":
            reader = spark.read.format("ceiling").option("size", size_bytes).option("events", events)
            return discard(reader.option("tasks", workload.partitions).load())
        frame = workload.generated(spark, events, size_bytes)
        if case == "generate":
            return discard(frame)
        return lambda: frame.write.format("ceiling").mode("append").save()

    def writing(self, case: str, side: Side, target: str, events: int, size_bytes: int) -> Job:
        """The timed job of a case that writes, into a target of the side."""
        if case == "write":
            frame = side.rows(workload.generated(self._rig.spark, events, size_bytes))
            return lambda: side.writer(frame.write, target).mode("append").save()
        frame = side.rows(workload.as_files(self._rig.spark, self._rig.folder, events, size_bytes))
        return lambda: self._run_available(side.writer(frame.writeStream, target), events)

    def reading(
        self, case: str, side: Side, events: int, size_bytes: int, options: Mapping[str, str] = MappingProxyType({})
    ) -> Job:
        """The timed job of a case that reads, with these options beside those of the side."""
        full, target = case.endswith("-full"), self.filled(side, events, size_bytes)
        if case.startswith("stream-"):
            frame = side.read(self._rig.spark.readStream.options(**options), target, full=full)
            return lambda: self._run_available(frame.writeStream.format("noop"), events)
        return discard(side.read(self._rig.spark.read.options(**options), target, full=full))

    def filled(self, side: Side, events: int, size_bytes: int) -> str:
        """A target with this many events, written once."""
        key = (side.name, events, size_bytes)
        if key not in self._filled:
            target = side.new_target(f"filled-{size_bytes}")
            frame = side.rows(workload.generated(self._rig.spark, events, size_bytes))
            side.writer(frame.write, target).mode("append").save()
            self._filled[key] = target
        return self._filled[key]

    def _run_available(self, writer: Any, events: int) -> None:
        checkpoint, started_s = self._rig.folder / f"checkpoint-{time.time_ns()}", time.perf_counter()
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        wall_s, progress = time.perf_counter() - started_s, query.recentProgress
        self.stream_ms = phases_ms([item.durationMs for item in progress], wall_s * 1000)
        moved = sum(item.numInputRows for item in progress)
        if moved != events:
            raise RuntimeError(f"{events} events were to be moved, {moved} were")
        shutil.rmtree(checkpoint)


def phases_ms(batches: Sequence[Mapping[str, int]], wall_ms: float) -> dict[str, float]:
    """All batches of a query together; ``outside`` is what Spark took to start and end it."""
    names = dict.fromkeys(name for batch in batches for name in batch)
    summed: dict[str, float] = {name: sum(batch.get(name, 0) for batch in batches) for name in names}
    return {**summed, "batches": len(batches), "outside": wall_ms - summed.get("triggerExecution", 0)}


def discard(frame: DataFrame) -> Job:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def told(measured: Measured) -> str:
    rate = measured.events / statistics.median(measured.seconds)
    return (
        f"{measured.case:<17} {measured.side:<6} {measured.size_bytes:>6} B  {rate:>11,.0f} events/s"
        f" {rate * measured.size_bytes / 1e6:>9,.1f} MB/s"
    )
