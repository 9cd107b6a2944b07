"""Measures what metrics cost on the data path of a store: ``python -m tests.bench.bench_metrics``.

A store runs in this process, with log and Tier 2 in memory, so that its own work is all there is; a client in another
one appends and reads, one request of each writer at a time, which is when every one of them is timed. The CPU time of
this process is set beside the number of durations that were counted, times what one takes, which is measured alone in
the same run. Ticks of the traffic of streams are timed where they happen, and so is an answer to ``/metrics``. Prints
one JSON object for each case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import timeit
import uuid
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, generate_latest

from pravega_common.runtime.clock import SystemClock
from pravega_common.services.latency import LatencyCounts
from pravega_common.wire import commands as wire
from segment_service.service import SegmentStoreProcess
from tests.support.store_in_process import running_store
from tests.support.wire_client import WireClient

writers: Final = 8
scrapes: Final = 20
scrape_period_s: Final = 15.0
"""As in the shipped settings of Prometheus."""
CASES: Final = {
    "append of 100 B": 100,
    "append of 10,000 B": 10_000,
    "append of 1 MiB": 1 << 20,
    "read of 1 MiB": -(1 << 20),
}
"""Bytes of a request; negative for reads."""


def one_duration_s() -> float:
    """The CPU time to take the clock twice and to count the difference."""
    clock, counts, number = SystemClock(), LatencyCounts(), 100_000

    def work() -> None:
        began_s = clock.monotonic_s()
        counts.note(clock.monotonic_s() - began_s)

    return min(timeit.repeat(work, timer=time.process_time, number=number, repeat=5)) / number


async def client(port: int, size: int, requests: int) -> None:
    """Appends, or reads what it appended before, on one connection for each writer."""

    async def one(number: int) -> None:
        connection, writer = await WireClient.connect(port), uuid.uuid4().bytes
        segment = f"bench/{number}-{size}/0.#epoch.0"
        await connection.call(wire.CreateSegment(1, segment, 0, 0), wire.SegmentCreated)
        await connection.call(wire.SetupAppend(2, writer, segment), wire.AppendSetup)
        length = abs(size)
        for event in range(1, (requests if size > 0 else 1) + 1):
            block = wire.AppendBlockEnd(writer, length, bytes(length), 1, event, event)
            await connection.call(block, wire.DataAppended)
        for request in range(requests if size < 0 else 0):
            await connection.call(wire.ReadSegment(segment, 0, length, "", request), wire.SegmentRead)

    await asyncio.gather(*map(one, range(writers)))


def counted(store: SegmentStoreProcess) -> int:
    """The durations that were counted since the start of the store."""
    times = store.wire.times
    parts = [times.appends, times.reads, *times.requests.values()]
    parts += [one.durable_log.frame_latencies for one in store.registry]
    return sum(part.count for part in parts)


async def measure(case: str, size: int, requests: int, unit_s: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        async with running_store(Path(name)) as running:
            ticks = _timed_ticks(running.process)
            before, began_s = counted(running.process), time.process_time()
            command = [sys.executable, "-m", "tests.bench.bench_metrics", "--client", str(running.port)]
            child = await asyncio.create_subprocess_exec(*command, "--case", case, "--requests", str(requests))
            assert await child.wait() == 0
            cpu_s, calls = time.process_time() - began_s, counted(running.process) - before
            registry = CollectorRegistry(auto_describe=False)
            registry.register(running.process.collector)
            scrape_s = min(
                timeit.repeat(lambda: generate_latest(registry), timer=time.process_time, number=1, repeat=scrapes)
            )
    notes_s, tick_s = calls * unit_s, sum(ticks)
    found = {
        "case": case,
        "requests": writers * requests,
        "cpu_us_per_request": round(cpu_s / writers / requests * 1e6, 1),
        "durations_per_request": round(calls / writers / requests, 2),
        "us_per_duration": round(unit_s * 1e6, 2),
        "durations_share_percent": round(100 * notes_s / cpu_s, 3),
        "ticks_share_percent": round(100 * tick_s / cpu_s, 3),
        "scrape_ms": round(scrape_s * 1e3, 1),
        "scrapes_percent_of_a_core": round(100 * scrape_s / scrape_period_s, 3),
    }
    print(json.dumps(found), flush=True)


def _timed_ticks(store: SegmentStoreProcess) -> list[float]:
    """Notes the CPU time of each tick of the traffic of streams from now on."""
    ticks: list[float] = []
    streams = store._streams
    plain = streams.tick

    async def tick() -> None:
        began_s = time.thread_time()
        await plain()
        ticks.append(time.thread_time() - began_s)

    streams.tick = tick  # type: ignore[method-assign]
    return ticks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000, help="of each of the 8 writers")
    parser.add_argument("--case", choices=CASES, help="this one alone")
    parser.add_argument("--client", type=int, metavar="PORT", help="be the client of a store at this port")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if args.client:
        asyncio.run(client(args.client, CASES[args.case], args.requests))
        return
    os.environ["PRAVEGA_SEGMENT_STORE_STORE__METRICS"] = "127.0.0.1:0"  # else nobody watches streams
    unit_s = one_duration_s()
    for case, size in CASES.items():
        if args.case in (None, case):
            asyncio.run(measure(case, size, args.requests if abs(size) < 1 << 20 else args.requests // 20, unit_s))


if __name__ == "__main__":
    main()
