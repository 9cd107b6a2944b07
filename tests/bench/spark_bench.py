"""Spark → stream and stream → Spark, beside what Spark's Python API and Redis can do alone.

usage: scripts/bench [--sizes 100,1000,10000] [--runs 3] [--cases write,read,...] [--scale 1.0] [--out FILE]
Prints progress on stderr and one JSON document on stdout (or to FILE).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pravega_spark.standalone.process import StandaloneProcess
from tests.bench import workload
from tests.bench.ceilings import CeilingSource, redis_bytes_per_second

SCOPE = "bench"
CASES = ("generate", "api-sink", "api-source", "write", "read", "stream-write", "stream-read")


class Bench:
    """Each case makes one timed function; ``measure`` runs it once unmeasured and then ``runs`` times."""

    def __init__(self, args: argparse.Namespace, folder: Path, cluster: StandaloneProcess) -> None:
        self.args = args
        self.folder = folder
        self.cluster = cluster
        self.spark = _session()
        self.spark.dataSource.register(CeilingSource)
        self._streams = 0

    def measure(self, case: str, size_bytes: int) -> dict[str, Any]:
        events = workload.events_per_run(size_bytes, self.args.scale)
        make: Callable[[int, int], Callable[[], None]] = getattr(self, "case_" + case.replace("-", "_"))
        walls_s = []
        for run in range(self.args.runs + 1):
            job = make(events if run else max(1_000, events // 10), size_bytes)
            started_s = time.perf_counter()
            job()
            if run:
                walls_s.append(time.perf_counter() - started_s)
        wall_s = statistics.median(walls_s)
        figures = {
            "case": case,
            "event_bytes": size_bytes,
            "events": events,
            "seconds": [round(value, 3) for value in walls_s],
            "events_per_second": round(events / wall_s),
            "megabytes_per_second": round(events * size_bytes / wall_s / 1e6, 1),
        }
        print(
            f"{case:<13} {size_bytes:>6} B  {figures['events_per_second']:>10,} events/s"
            f" {figures['megabytes_per_second']:>8} MB/s",
            file=sys.stderr,
            flush=True,
        )
        return figures

    def case_generate(self, events: int, size_bytes: int) -> Callable[[], None]:
        frame = workload.generated(self.spark, events, size_bytes)
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def case_api_sink(self, events: int, size_bytes: int) -> Callable[[], None]:
        frame = workload.generated(self.spark, events, size_bytes)
        return lambda: frame.write.format("ceiling").mode("append").save()

    def case_api_source(self, events: int, size_bytes: int) -> Callable[[], None]:
        reader = self.spark.read.format("ceiling").option("size", size_bytes).option("events", events)
        frame = reader.option("tasks", workload.partitions).load()
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def case_write(self, events: int, size_bytes: int) -> Callable[[], None]:
        frame, stream = workload.generated(self.spark, events, size_bytes), self._new_stream("write", size_bytes)
        return lambda: self._options(frame.write.format("pravega"), stream).mode("append").save()

    def case_read(self, events: int, size_bytes: int) -> Callable[[], None]:
        stream = self._filled(events, size_bytes)
        frame = self._options(self.spark.read.format("pravega"), stream).schema("event binary").load()
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def case_stream_write(self, events: int, size_bytes: int) -> Callable[[], None]:
        frame = workload.as_files(self.spark, self.folder, events, size_bytes)
        stream = self._new_stream("streamed", size_bytes)
        return lambda: self._run_available(frame, "pravega", stream, events)

    def case_stream_read(self, events: int, size_bytes: int) -> Callable[[], None]:
        stream = self._filled(events, size_bytes)
        reader = self._options(self.spark.readStream.format("pravega"), stream).schema("event binary")
        frame = reader.option("start_stream_cut", "earliest").load()
        return lambda: self._run_available(frame, "noop", None, events)

    def _options(self, builder: Any, stream: str) -> Any:
        builder = builder.option("controller", self.cluster.controller_uri).option("scope", SCOPE)
        return builder.option("stream", stream)

    def _new_stream(self, kind: str, size_bytes: int) -> str:
        self._streams += 1
        stream = f"{kind}-{size_bytes}-{self._streams}"
        from pravega_streams.controller import ScalingPolicy, StreamConfiguration
        from pravega_streams.sync import StreamClient

        with StreamClient(self.cluster.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy(workload.partitions)))
        return stream

    def _filled(self, events: int, size_bytes: int) -> str:
        """A stream with this many events, written once."""
        name = f"filled-{size_bytes}-{events}"
        marker = self.folder / name
        if not marker.exists():
            stream = self._new_stream(name, size_bytes)
            frame = workload.generated(self.spark, events, size_bytes)
            self._options(frame.write.format("pravega"), stream).mode("append").save()
            marker.write_text(stream)
        return marker.read_text()

    def _run_available(self, frame: DataFrame, sink: str, stream: str | None, events: int) -> None:
        checkpoint = self.folder / f"checkpoint-{time.time_ns()}"
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
        if stream is not None:
            writer = self._options(writer, stream)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        moved = sum(item.numInputRows for item in query.recentProgress)
        if moved != events:
            raise RuntimeError(f"{events} events were to be moved, {moved} were")
        shutil.rmtree(checkpoint)


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pravega-spark bench")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def shares(results: list[dict[str, Any]], redis_megabytes_per_second: float) -> list[dict[str, Any]]:
    """Each of our figures as a share of the ceilings of the same run."""
    rate = {(item["case"], item["event_bytes"]): item["megabytes_per_second"] for item in results}
    table = []
    for case, ceiling in (
        ("write", "api-sink"),
        ("stream-write", "api-sink"),
        ("read", "api-source"),
        ("stream-read", "api-source"),
    ):
        for size_bytes in sorted({item["event_bytes"] for item in results}):
            if (case, size_bytes) not in rate:
                continue
            share = {"case": case, "event_bytes": size_bytes}
            if (ceiling, size_bytes) in rate:
                share["of_api"] = round(rate[case, size_bytes] / rate[ceiling, size_bytes], 3)
            share["of_redis"] = round(rate[case, size_bytes] / redis_megabytes_per_second, 3)
            table.append(share)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--sizes", default="100,1000,10000", help="event sizes in bytes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of events")
    parser.add_argument("--tier2", default="dir", choices=("dir", "minio"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-bench-"))
    redis = redis_bytes_per_second(folder / "raw-redis") / 1e6
    print(f"raw Redis, 1 MiB entries: {redis:,.0f} MB/s", file=sys.stderr)
    with StandaloneProcess(folder / "cluster", tier2=args.tier2) as cluster:
        bench = Bench(args, folder, cluster)
        results = [
            bench.measure(case, size_bytes)
            for size_bytes in map(int, args.sizes.split(","))
            for case in args.cases.split(",")
        ]
        bench.spark.stop()
    document = {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "redis_megabytes_per_second": round(redis, 1),
        "results": results,
        "shares": shares(results, redis),
    }
    text = json.dumps(document, indent=2)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
