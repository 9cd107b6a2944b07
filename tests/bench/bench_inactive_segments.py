"""Measures a container of many segments of which 1,000 are active: ``python -m tests.bench.bench_inactive_segments``.

One process creates the segments, empty ones, lets them leave memory and stops. Another one starts the container from
the log that is left and a Tier 2 in a directory, appends 100 B to random ones of 1,000 segments, 16 at a time, and
reports: the time of the start, the memory of the process after the start and with the active segments beyond what it
had before, the bytes of a checkpoint, the latencies of appends, and those of the first append to each segment, which
looks it up. The log is in memory and durable at once. Prints a JSON object for each round, and a
table of medians on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from segment_service.container.segment_container import SegmentContainer
from segment_service.metadata.snapshot import write_snapshot
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from tests.bench.tables import beside_first
from tests.support.containers import ContainerKit

active: Final = 1_000
appends: Final = 40_000
append_bytes: Final = 100
at_once: Final = 16
creations_at_once: Final = 1_000


class DirectoryKit(ContainerKit):
    """Tier 2 in a directory, the log in memory."""

    def __init__(self, folder: Path, table: MetadataTableConfig) -> None:
        super().__init__(cache_bytes=128 << 20, unflushed_bytes_max=100 << 20)
        self.files = FilesystemChunkStorage(folder, threads_max=4)
        self.background = True
        self.chunks = self.files  # type: ignore[assignment]  # the kit's own injects failures
        self.config = replace(self.config, metadata_table=table)
        self.write_to_tier2(WriterConfig())

    def make_storage(self, container_id: int) -> RollingStorage:
        return RollingStorage(self.files, container_id, self.clock)


def name_of(number: int) -> str:
    return f"scope/some-stream-{number % 97}/segment-{number}"


def resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / (1 << 20), 1)


def checkpoint_bytes(container: SegmentContainer) -> int:
    staged = container.durable_log._updater.staged_segments()  # private: what the next checkpoint holds
    return len(write_snapshot(container.metadata, staged))


async def create(folder: Path, count: int) -> Any:
    """Make the segments; returns the log that is left."""
    kit = DirectoryKit(folder, MetadataTableConfig(flush_age_s=1.0, idle_s=0.0, look_s=0.2, active_max=active))
    await kit.files.start()
    container = await kit.open()
    for first in range(0, count, creations_at_once):
        numbers = range(first, min(first + creations_at_once, count))
        await asyncio.gather(*(container.create_segment(name_of(number)) for number in numbers))
        while len(container.metadata.segments) > 20_000:  # noqa: ASYNC110 - nothing says when they leave
            await asyncio.sleep(0.01)  # the pace of what brings them to the table
    while container.metadata.segments:
        await container.durable_log.barrier()
        await asyncio.sleep(0.1)  # the same
    await container.durable_log.checkpoint()
    await container.stop()
    container = await kit.open()  # whose first checkpoint is where the log is truncated
    await asyncio.sleep(2.0)  # for the truncation
    await container.stop()
    await kit.files.close()
    return portable(kit)


def portable(kit: ContainerKit) -> Any:
    """The log, in a form that another process takes."""
    log = kit.logs.backup(0)
    return replace(log, entries=[replace(entry, payload=memoryview(bytes(entry.payload))) for entry in log.entries])


def restore(kit: ContainerKit, log: Any) -> None:
    kit.logs.restore(0, replace(log, entries=[replace(one, payload=memoryview(one.payload)) for one in log.entries]))


async def use(folder: Path, count: int, log: Any) -> dict[str, float]:
    kit = DirectoryKit(folder, MetadataTableConfig())
    await kit.files.start()
    restore(kit, log)
    before = resident_mib()
    began = time.perf_counter()
    container = await kit.open()
    start_s = time.perf_counter() - began
    started = resident_mib()
    rng = random.Random(1)
    names = [name_of(number) for number in rng.sample(range(count), active)]
    first = await timed(container, names)
    latencies = await timed(container, [rng.choice(names) for _ in range(appends)])
    result = {
        "segments": count,
        "start_ms": round(start_s * 1000),
        "log_frames": container.durable_log.recovered.frames,
        "memory_after_start_mib": round(started - before, 1),
        "memory_with_active_mib": round(resident_mib() - before, 1),
        "segments_in_memory": len(container.metadata.segments),
        "checkpoint_bytes": checkpoint_bytes(container),
        "first_append_p50_ms": percentile(first, 0.5),
        "first_append_p99_ms": percentile(first, 0.99),
        "append_p50_ms": percentile(latencies, 0.5),
        "append_p99_ms": percentile(latencies, 0.99),
        "appends_per_s": round(at_once / (sum(latencies) / len(latencies))),
    }
    await container.stop()
    await kit.files.close()
    return result


async def timed(container: SegmentContainer, names: list[str]) -> list[float]:
    """Seconds of an append to each of the segments, some at a time."""
    data = memoryview(bytes(append_bytes))
    latencies: list[float] = []
    waiting = iter(names)

    async def appender() -> None:
        for name in waiting:
            began = time.perf_counter()
            await container.append(name, (data,))
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(appender() for _ in range(at_once)))
    return latencies


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[int(len(values) * share)] * 1000, 3)


def run(work: str, folder: str, count: int, log: Any) -> Any:
    """The part of a process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    return uvloop.run(create(Path(folder), count) if work == "create" else use(Path(folder), count, log))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    medians = []
    for count in arguments.segments:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with processes.Pool(1) as pool:
                log = pool.apply(run, ("create", folder, count, None))
            made_s = time.perf_counter() - began
            results = []
            for _ in range(arguments.rounds):
                with tempfile.TemporaryDirectory() as copy, processes.Pool(1) as pool:
                    shutil.copytree(folder, copy, dirs_exist_ok=True)
                    result = pool.apply(run, ("use", copy, count, log))
                results.append({"made_s": round(made_s), **result})
                print(json.dumps(results[-1]), flush=True)
            medians.append({key: statistics.median(one[key] for one in results) for key in results[0]})
    print(beside_first(f"By segments of which {active:,} are active, medians", medians, "segments"), file=sys.stderr)


if __name__ == "__main__":
    main()
