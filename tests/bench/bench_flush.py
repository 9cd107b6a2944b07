"""Puts per second and flushed MB/s of one container into Tier 2: ``python -m tests.bench.bench_flush [URL]``.

Two loads on a whole container whose log answers at once: a trickle of 1 KB appends to many segments, which are flushed
by age, and blocks of 1 MiB to four segments as fast as Tier 2 takes them, which are flushed by size. Puts are counted
by what they store. Each load runs twice: with objects of their own, and with small ones that share large ones. Without
a URL (as ``tier2.url``) a MinIO is started. Prints one JSON object for each load.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
import uvloop

from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.s3_access import S3Access
from segment_service.writer.config import WriterConfig, shared_flushes_at_once_max
from tests.bench.bench_container import InstantKit
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.servers import MinioServer, running_minio

seconds: Final = 15.0
trickle_segments: Final = 200
trickle_pause_s: Final = 0.005
"""Between two appends, each to the next segment."""
bulk_segments: Final = 4
bulk_bytes: Final = 1 << 20
kinds: Final = {"d": "chunk", "m": "manifest", "e": "mark", "t": "map"}


class CountedChunks(FaultyChunkStorage):
    """Counts puts by kind; nothing fails."""

    def __init__(self, inner: ChunkStorage, kit: InstantKit) -> None:
        super().__init__(inner, random.Random(7), kit.clock)
        self.puts: Counter[str] = Counter()

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        self.puts[kinds[name.split("/")[1]]] += 1
        await super().put(name, data)


async def measure(url: str, load: str, *, shares_objects: bool) -> dict[str, object]:
    inner = make_chunk_storage(url, s3=S3Access(MinioServer.access_key, MinioServer.secret_key, may_make_bucket=True))
    await inner.start()
    kit = InstantKit(cache_bytes=512 << 20, unflushed_bytes_max=256 << 20)
    kit.chunks = chunks = CountedChunks(inner, kit)
    kit.shares_objects = shares_objects
    kit.write_to_tier2(WriterConfig(small_flushes_at_once_max=shared_flushes_at_once_max if shares_objects else 0))
    kit.background = True
    container = await kit.open()
    count = trickle_segments if load == "trickle" else bulk_segments
    names = [f"scope/stream/{number}.#epoch.0" for number in range(count)]
    for name in names:
        await container.create_segment(name)
    before, began = Counter(chunks.puts), time.perf_counter()
    await (trickle(container, names) if load == "trickle" else bulk(kit, container, names))
    taken, puts = time.perf_counter() - began, chunks.puts - before
    flushed = sum(segment.storage_length for segment in container.metadata.segments.values())
    await container.stop()
    async for info in inner.list(""):
        await inner.delete_all([info.name])
    await inner.close()
    rates = {f"{kind}_puts_per_s": round(puts[kind] / taken, 1) for kind in kinds.values()}
    return {
        "load": load,
        "shares_objects": shares_objects,
        "flushed_MB_per_s": round(flushed / taken / 1e6, 2),
        **rates,
    }


async def trickle(container: SegmentContainer, names: Sequence[str]) -> None:
    data, ends_s, number = memoryview(bytes(1_000)), time.perf_counter() + seconds, 0
    while time.perf_counter() < ends_s:
        await container.append(names[number % len(names)], (data,))
        number += 1
        await asyncio.sleep(trickle_pause_s)


async def bulk(kit: InstantKit, container: SegmentContainer, names: Sequence[str]) -> None:
    data, ends_s, number = memoryview(bytes(bulk_bytes)), time.perf_counter() + seconds, 0
    while time.perf_counter() < ends_s:
        await kit.back_pressure.wait_open()
        await container.append(names[number % len(names)], (data,))
        number += 1


def run(url: str) -> None:
    for load, shares_objects in itertools.product(("trickle", "bulk"), (False, True)):
        place = f"{url}-{load}-{'shared' if shares_objects else 'alone'}"  # a put that is cut off may land in the next
        figures = uvloop.run(measure(place, load, shares_objects=shares_objects))
        print(json.dumps({"url": url, **figures}), flush=True)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder, running_minio(Path(folder)) as server:
        run(f"http://{server.address}/bench")


if __name__ == "__main__":
    main()
