"""Measures a container whose appends spread over many segments: ``python -m tests.bench.bench_waiting_segments``.

Every segment first gets one small append, so that all of them wait for Tier 2; then 3,000 appends of 100 B a second
go to random ones, whether or not earlier ones were acknowledged. The log is durable at once; Tier 2 is in memory and
takes 10 ms for each call. What is measured is therefore the storage writer, the bookkeeping of segments in Tier 2, and
what both leave of the event loop to appends. Prints one JSON object for each number of segments, and a table on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, TypeVar

import structlog
import uvloop
from sortedcontainers import SortedDict

from pravega_common.errors import PravegaError, SegmentNotFound
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.contracts.data_log import DurableDataLog
from segment_service.process import collector_thresholds
from segment_service.writer.config import WriterConfig, shared_flushes_at_once_max
from segment_service.writer.storage_writer import StorageWriter
from tests.bench.bench_container import InstantLog
from tests.bench.tables import beside_first
from tests.support.containers import ContainerKit

T = TypeVar("T")

rate_per_s: Final = 3_000
append_bytes: Final = 100
call_s: Final = 0.01
"""Time that Tier 2 takes for a call: that of an object store nearby."""
step_s: Final = 0.002
"""How often the load is applied."""
creations_at_once: Final = 500


class RemoteTier2:
    """A ``ChunkStorage`` in memory that takes a while for each call, and counts the puts."""

    def __init__(self) -> None:
        self.puts = 0
        self._objects: SortedDict = SortedDict()

    async def start(self) -> None:
        pass

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        await asyncio.sleep(call_s)
        self.puts += 1
        self._objects[name] = b"".join(data)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        await asyncio.sleep(call_s)
        data: bytes | None = self._objects.get(name)
        if data is None:
            raise SegmentNotFound(name)
        return data[offset : offset + length]

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        return function(await self.get(name, offset, length))

    async def info(self, name: str) -> ChunkInfo:
        return ChunkInfo(name, len(await self.get(name, 0, 1 << 30)))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        await asyncio.sleep(call_s)
        for name in list(self._objects.irange(prefix, prefix + "\x7f")):
            yield ChunkInfo(name, len(self._objects[name]))

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        await asyncio.sleep(call_s)
        for name in names:
            self._objects.pop(name, None)
        return {}

    async def close(self) -> None:
        pass


class WaitingKit(ContainerKit):
    """A container on ``InstantLog`` and ``RemoteTier2`` with the storage writer as it is configured by default."""

    def __init__(self, *, shares_objects: bool) -> None:
        super().__init__(cache_bytes=2 << 30, unflushed_bytes_max=1 << 30)
        self.tier2 = RemoteTier2()
        self.chunks = self.tier2  # type: ignore[assignment]
        self.background = True
        self.shares_objects = shares_objects
        small = shared_flushes_at_once_max if shares_objects else 0
        self.write_to_tier2(WriterConfig(small_flushes_at_once_max=small))

    def make_log(self, container_id: int) -> DurableDataLog:
        return InstantLog(container_id)


class Load:
    """Appends to random segments at a fixed rate, and the time of each from when it was due."""

    def __init__(self, container: SegmentContainer, names: Sequence[str]) -> None:
        self.times_ms: list[float] = []
        self._container = container
        self._names = names
        self._rng = random.Random(1)
        self._data = memoryview(bytes(append_bytes))

    async def run(self, seconds: float) -> None:
        began = time.perf_counter()
        sent = 0
        while sent < seconds * rate_per_s:
            due = int((time.perf_counter() - began) * rate_per_s)
            while sent < due:
                self._append(began + sent / rate_per_s)
                sent += 1
            await asyncio.sleep(step_s)

    def _append(self, due_s: float) -> None:
        def acknowledged(done: asyncio.Future[int]) -> None:
            done.result()
            self.times_ms.append((time.perf_counter() - due_s) * 1e3)

        appended = self._container.append(self._rng.choice(self._names), (self._data,))
        appended.add_done_callback(acknowledged)


async def measure(segments: int, seconds: float, *, shares_objects: bool) -> dict[str, float]:
    kit = WaitingKit(shares_objects=shares_objects)
    container = await kit.open()
    names = [f"scope/segment-{number}" for number in range(segments)]
    for first in range(0, segments, creations_at_once):
        some = names[first : first + creations_at_once]
        await asyncio.gather(*(container.create_segment(name) for name in some))
        await asyncio.gather(*(container.append(name, (bytes(append_bytes),)) for name in some))
    load = Load(container, names)
    flushes_began = _flushes(container)
    waited = container.pending.operations
    began, cpu_began, puts_began = time.perf_counter(), time.process_time(), kit.tier2.puts
    await load.run(seconds)
    taken = time.perf_counter() - began
    flushes = _flushes(container) - flushes_began
    cpu, puts = time.process_time() - cpu_began, kit.tier2.puts - puts_began
    waits = container.pending.operations
    times_ms = sorted(load.times_ms)
    await container.stop()
    return {
        "segments": segments,
        "operations_waiting_first": waited,
        "operations_waiting_last": waits,
        "cpu_percent": round(100 * cpu / taken),
        "append_p50_ms": round(times_ms[len(times_ms) // 2], 1),
        "append_p99_ms": round(times_ms[len(times_ms) * 99 // 100], 1),
        "segments_flushed_per_s": round(flushes / taken),
        "puts_per_s": round(puts / taken),
    }


def _flushes(container: SegmentContainer) -> int:
    writer = container._writer  # private: counts writes of segments, which nothing else shows
    assert isinstance(writer, StorageWriter)
    return writer.flusher.writes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", default="10,1000,20000,60000,100000")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--alone", action="store_true", help="small objects do not share large ones")
    options = parser.parse_args()
    gc.freeze()
    gc.set_threshold(*collector_thresholds)  # as a store does
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    results = []
    for segments in (int(text) for text in options.segments.split(",")):
        results.append(uvloop.run(measure(segments, options.seconds, shares_objects=not options.alone)))
        print(json.dumps(results[-1]), flush=True)
    print(beside_first("By segments that wait for Tier 2", results, "segments"), file=sys.stderr)


if __name__ == "__main__":
    main()
