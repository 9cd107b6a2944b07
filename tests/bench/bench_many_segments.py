"""Measures the source and the sink on streams of many segments: ``python -m tests.bench.bench_many_segments``.

The reader and the writer that Spark would drive run in this process, on a standalone of their own: so the figures are
what the connector and the services cost, without Spark. For each number of segments there is one JSON object:

* ``first_plan_ms``: the first plan of a query in a new process, which has to find the store of each segment;
* ``plan_ms``, ``plan_limited_ms``: the plan of a batch with new events in every segment, without limits and with 10
  events for each segment (``planning_limited_calls``: requests to stores and controller for one);
* ``idle_poll_ms``, ``idle_calls``: a look that finds nothing; ``idle_core_percent``: CPU of client and services while
  the source is asked every 10 ms for some seconds, as Spark does, once what was written is in Tier 2
  (``idle_client_core_percent`` of the client alone; what the services use without a query is not counted);
* ``offset_bytes``: the text of a batch's end in the checkpoint;
* ``task_mib``: growth of the peak memory by a task that writes 256 MB over all segments;
* ``commit_ms``: from the decision until readers see a batch with rows in every segment, right behind the tasks that
  wrote it (``task_write_ms``); what the measurements before wrote is in Tier 2 when the first of them begins.

With ``--commits N`` there are only commits, N of each number of segments, of services that have settled after the
tasks: ``commit_ms``, least and median, and the CPU that the client and the services used for it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import Sink
from pravega_spark.gateway.connect import gateway_for
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.sink.batch_commit import commit_batch
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.direct_writer import DirectWriter
from pravega_spark.sink.transaction_writer import TransactionWriter
from pravega_spark.source.stream_reader import StreamReader
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.controller.transport import ControllerTransport
from tests.bench.processes import process_table, tree_of

SCOPE: Final = "bench"
COLUMNS: Final = SinkColumns(event=1, key=0)
SCHEMA: Final = pa.schema([("event", pa.binary())])
events_per_segment: Final = 20
"""Random keys: nearly every segment gets some in every round."""
events_limit_per_segment: Final = 10
looks: Final = 20
plans: Final = 5
idle_s: Final = 8.0
spark_poll_s: Final = 0.01
"""How often Spark asks an idle source."""
index_delay_s: Final = 1.0
"""The index of a store is behind by a tenth of a second."""
settled_share: Final = 0.03
"""Services are settled while they use less of a core: what was written is in Tier 2."""
settle_time_max_s: Final = 120.0
task_bytes: Final = 256 * 1024 * 1024
task_event_bytes: Final = 1000


@dataclass
class Calls:
    """Requests to stores and to the controller."""

    count: int = 0


@contextmanager
def counted() -> Iterator[Calls]:
    """Counts the requests of the clients of this process."""
    calls = Calls()
    send, call = WireSocket.send, ControllerTransport._call

    def sent(self: WireSocket, *commands: Any) -> None:
        calls.count += len(commands)
        send(self, *commands)

    def called(self: ControllerTransport, *arguments: Any) -> Any:
        calls.count += 1
        return call(self, *arguments)

    with patch.object(WireSocket, "send", sent), patch.object(ControllerTransport, "_call", called):
        yield calls


def timed_ms(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e3


def rows(count: int, event_bytes: int) -> pa.RecordBatch:
    """Rows with a key each."""
    keys = pa.array([os.urandom(8).hex() for _ in range(count)])
    return pa.record_batch([keys, pa.array([os.urandom(event_bytes)] * count, pa.binary())], names=["key", "event"])


@dataclass(frozen=True, slots=True)
class Commit:
    """What one batch took, in milliseconds of the clock and of CPU."""

    write_ms: float
    commit_ms: float
    client_cpu_ms: float
    services_cpu_ms: float


class Bench:
    """The measurements of one stream."""

    def __init__(self, cluster: StandaloneProcess, segments: int) -> None:
        self._cluster = cluster
        self._segments = segments
        self._stream = f"stream-{segments}"
        self._address = {"controller": cluster.controller_uri, "scope": SCOPE, "stream": self._stream}
        self._gateway = gateway_for(cluster.controller_uri)
        self._gateway.create_scope(SCOPE)
        self._gateway.create_stream(SCOPE, self._stream, StreamConfiguration(ScalingPolicy.fixed(segments)))

    def measure(self) -> dict[str, Any]:
        self._write()
        time.sleep(index_delay_s)
        first_plan_ms = in_new_process(first_plan, self._address)
        reader = self._reader()
        position = self._all_read(reader, reader.initialOffset())
        plan_ms, position, _ = self._plans(reader, position)
        limited = self._reader(max_events_per_trigger=events_limit_per_segment * self._segments)
        limited_ms, position, limited_calls = self._plans(limited, position)
        position = self._all_read(reader, position)
        result = {
            "segments": self._segments,
            "first_plan_ms": first_plan_ms,
            "plan_ms": plan_ms,
            "plan_limited_ms": limited_ms,
            "planning_limited_calls": limited_calls,
            **self._idle(reader, position),
            "offset_bytes": len(json.dumps(position)),
            "task_mib": in_new_process(task_growth_mib, self._address),
            **self._commits(),
        }
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in result.items()}

    def measure_commits(self, count: int) -> dict[str, Any]:
        """Commits alone, one after the other."""
        commits = self._committed(count, settles=True)
        taken = {name: [getattr(one, name) for one in commits] for name in Commit.__slots__}
        return {
            "segments": self._segments,
            **{
                name: {"min": round(min(some), 1), "p50": round(statistics.median(some), 1)}
                for name, some in taken.items()
            },
        }

    def _reader(self, **options: Any) -> StreamReader:
        return reader_of({**self._address, **{name: str(value) for name, value in options.items()}})

    def _write(self) -> None:
        batch = rows(self._segments * events_per_segment, 100)
        DirectWriter(self._gateway, SCOPE, self._stream, COLUMNS).write([batch])

    def _all_read(self, reader: StreamReader, position: dict[str, Any]) -> dict[str, Any]:
        while (end := reader.latestOffset(position, ReadAllAvailable())) != position:
            position = end
        return position

    def _plans(self, reader: StreamReader, position: dict[str, Any]) -> tuple[float, dict[str, Any], int]:
        """Plans of batches, each after new events in all segments."""
        times_ms = []
        for _ in range(plans):
            self._write()
            time.sleep(index_delay_s)
            limit = reader.getDefaultReadLimit()
            with counted() as calls:
                began = time.perf_counter()
                end = reader.latestOffset(position, limit)
                reader.partitions(position, end)
                times_ms.append((time.perf_counter() - began) * 1e3)
            position = end
        return statistics.median(times_ms), position, calls.count

    def _idle(self, reader: StreamReader, position: dict[str, Any]) -> dict[str, float]:
        look = self._reader()
        look.latestOffset(position, ReadAllAvailable())
        times_ms = []
        for _ in range(looks):
            # The private step: the public one puts looks off.
            times_ms.append(timed_ms(lambda: look._looked_for(position, ReadAllAvailable())))
        with counted() as calls:
            look._looked_for(position, ReadAllAvailable())
        self._settle()
        began, own_s, services_s = time.perf_counter(), time.process_time(), self._services_s()
        while (took_s := time.perf_counter() - began) < idle_s:
            reader.latestOffset(position, reader.getDefaultReadLimit())
            time.sleep(spark_poll_s)
        services_share = (self._services_s() - services_s) / took_s
        own_share = (time.process_time() - own_s) / took_s
        time.sleep(1.0)
        services_idle_s, began = self._services_s(), time.perf_counter()
        time.sleep(idle_s)
        without_share = (self._services_s() - services_idle_s) / (time.perf_counter() - began)
        return {
            "idle_poll_ms": statistics.median(times_ms),
            "idle_calls": calls.count,
            "idle_core_percent": 100 * (own_share + max(0.0, services_share - without_share)),
            "idle_client_core_percent": 100 * own_share,
            "services_without_query_core_percent": 100 * without_share,
        }

    def _settle(self) -> None:
        """Wait until the services have nothing to do but to be there."""
        ends_s = time.monotonic() + settle_time_max_s
        while time.monotonic() < ends_s:
            before_s = self._services_s()
            time.sleep(1.0)
            if self._services_s() - before_s < settled_share:
                return

    def _services_s(self) -> float:
        table = process_table()
        pids = {pid for root in self._cluster.ready()["pids"].values() for pid in tree_of(table, root)}
        return sum(table[pid].own_s for pid in pids if pid in table)

    def _commits(self) -> dict[str, float]:
        self._settle()
        commits = self._committed(plans, settles=False)
        return {
            "task_write_ms": statistics.median(one.write_ms for one in commits),
            "commit_ms": statistics.median(one.commit_ms for one in commits),
            "commit_worst_ms": max(one.commit_ms for one in commits),
        }

    def _committed(self, count: int, *, settles: bool) -> list[Commit]:
        """Batches of a sink; the first one, which is not among them, warms everything up."""
        options = WriteOptions.parse(self._address, Use.STREAM_WRITE)
        sink = Sink(str(uuid.uuid4()), options.destination)
        identities = [BatchIdentity(sink, "run", batch_id) for batch_id in range(count + 1)]
        return [self._one_commit(options, identity, settles=settles) for identity in identities][1:]

    def _one_commit(self, options: WriteOptions, identity: BatchIdentity, *, settles: bool) -> Commit:
        destinations = Destinations(SCOPE, (SCOPE, self._stream))
        writer = TransactionWriter(
            self._gateway, identity, destinations, COLUMNS, partition=0, lease_ms=options.transaction_timeout_ms
        )
        batch = rows(self._segments * events_per_segment, 100)
        began = time.perf_counter()
        message = writer.write([batch])
        write_ms = (time.perf_counter() - began) * 1e3
        if settles:
            self._settle()
        services_s, own_s = self._services_s(), time.process_time()
        commit_ms = timed_ms(lambda: commit_batch(self._gateway, options, [message], identity.batch_id))
        own_ms, services_ms = (time.process_time() - own_s) * 1e3, (self._services_s() - services_s) * 1e3
        return Commit(write_ms, commit_ms, own_ms, services_ms)


def reader_of(options: dict[str, str]) -> StreamReader:
    """A reader from the beginning of the stream."""
    given = {"start_stream_cut": "earliest", **options}
    return StreamReader(ReadOptions.parse(given, Use.STREAM_READ), SCHEMA)


def first_plan(address: dict[str, str]) -> float:
    """The time of a new query's first plan."""
    reader = reader_of(address)

    def plan() -> None:
        start = reader.initialOffset()
        reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    return timed_ms(plan)


def task_growth_mib(address: dict[str, str]) -> float:
    """The growth of the peak memory by one task; its rows are made as they are written."""
    gateway = gateway_for(address["controller"])
    batch_rows = 4_000

    def made() -> Iterable[pa.RecordBatch]:
        for _ in range(task_bytes // (batch_rows * task_event_bytes)):
            yield rows(batch_rows, task_event_bytes)

    writer = DirectWriter(gateway, address["scope"], address["stream"], COLUMNS)
    writer.write([rows(batch_rows, task_event_bytes)])
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    DirectWriter(gateway, address["scope"], address["stream"], COLUMNS).write(made())
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024


def in_new_process(step: Callable[[dict[str, str]], float], address: dict[str, str]) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(step, (address,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", default="10,100,1000")
    parser.add_argument("--commits", type=int, default=0, help="measure only commits, this number of them")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-bench-"))
    try:
        with StandaloneProcess(folder / "cluster") as cluster:
            for segments in (int(text) for text in arguments.segments.split(",")):
                bench = Bench(cluster, segments)
                found = bench.measure_commits(arguments.commits) if arguments.commits else bench.measure()
                print(json.dumps(found), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
