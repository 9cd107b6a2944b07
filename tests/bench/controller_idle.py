"""Measures what controllers cost that nobody calls, and how quickly they answer ``getURI``.

``python -m tests.bench.controller_idle [--streams 10000] [--sinks 10000] [--controllers 5] [--seconds 60]`` runs the
controllers in this process, over tables in memory that count requests, so the processor time is theirs alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import Counter
from typing import Any, Final

import grpc
import structlog

from controller_service.buckets.retention_job import first_run_max_s
from controller_service.service import Controller
from controller_service.store.in_memory import InMemoryVersionedStore
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceStub
from pravega_common.runtime.clock import SystemClock
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.cpo import InMemoryCPO

S: Final = "scope"
together: Final = 32
"""Calls at a time while everything is made."""
endpoint_calls: Final = 5_000
retention_run_s: Final = first_run_max_s + 15
"""From the start of the controllers until their first run of retention is over."""


class CountingTables(InMemoryVersionedStore):
    """Counts the requests that controllers make, by method and table."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()

    def _count(self, method: str, table: str) -> None:
        self.requests[f"{method} {table.rsplit('/', 1)[-1].split('.#.')[0]}"] += 1

    async def get_many(self, table: str, *args: Any) -> Any:
        self._count("get", table)
        return await super().get_many(table, *args)

    async def put_many(self, table: str, *args: Any) -> Any:
        self._count("put", table)
        return await super().put_many(table, *args)

    async def scan(self, table: str, *args: Any) -> Any:
        self._count("scan", table)
        return await super().scan(table, *args)


async def _fill(controller: Controller, streams: int, sinks: int) -> None:
    await controller.store.create_scope(S)
    retention = RetentionPolicy(RetentionType.SIZE, 1 << 30)
    slots = asyncio.Semaphore(together)

    async def stream(number: int) -> None:
        configuration = StreamConfiguration(ScalingPolicy.fixed(1), retention if number % 10 == 0 else None)
        async with slots:
            await controller.parts.workflows.create.create(S, f"stream{number}", configuration)

    async def sink(number: int) -> None:
        async with slots:
            await controller.sets.commit(f"query{number}", f"{S}/stream0", "run", 0, [], 0, 0)

    await asyncio.gather(*map(stream, range(streams)))
    await asyncio.gather(*map(sink, range(sinks)))


async def _endpoint_times_ms(controller: Controller, streams: int) -> list[float]:
    times = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        stub: Any = ControllerServiceStub(channel)
        for number in range(endpoint_calls):
            segment = pb.SegmentId(streamInfo=pb.StreamInfo(scope=S, stream=f"stream{number % streams}"))
            start_s = time.perf_counter()
            await stub.getURI(segment)
            times.append(1_000 * (time.perf_counter() - start_s))
    return times


async def _measure_idle(when: str, tables: CountingTables, seconds: float, controllers: int) -> None:
    tables.requests.clear()
    cpu_s, start_s = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    spent_s, passed_s = time.process_time() - cpu_s, time.perf_counter() - start_s
    each = 100 * spent_s / passed_s / controllers
    requests = 60 * tables.requests.total() / passed_s / controllers
    print(f"{when}, {passed_s:.0f} s: {each:.2f} % of a core and {requests:.0f} table requests a minute a controller")
    print("  " + ", ".join(f"{name} {count}" for name, count in tables.requests.most_common(8)))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("streams", 10_000), ("sinks", 10_000), ("controllers", 5), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    tables, clock = CountingTables(), SystemClock()
    parts = ControllerParts(clock=clock, cpo=InMemoryCPO(clock), tables=tables)
    controllers = [parts.controller(id=f"controller{number}") for number in range(wanted.controllers)]
    for controller in controllers:
        await controller.start()
    start_s = time.perf_counter()
    await _fill(controllers[0], wanted.streams, wanted.sinks)
    print(f"{wanted.streams:,} streams and {wanted.sinks:,} finished sinks in {time.perf_counter() - start_s:.0f} s")
    await _measure_idle("with the first run of retention", tables, retention_run_s, wanted.controllers)
    await _measure_idle("between two runs of retention", tables, wanted.seconds, wanted.controllers)
    times = await _endpoint_times_ms(controllers[0], wanted.streams)
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"getURI over gRPC, {endpoint_calls:,} calls one after the other: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    for controller in controllers:
        await controller.stop()


if __name__ == "__main__":
    asyncio.run(main())
