"""Flush and cold-read MB/s of one segment through ``RollingStorage``: ``python -m tests.bench.bench_storage [URL]``.

Chunks of 16 MiB are written as the storage writer does, from 1 MiB views. Then all is read, in 1 MiB reads, eight at a
time, and in random reads of 64 KiB that begin with a block, as the read index makes them. Without a URL (as
``tier2.url``) the chunks stay in memory, so that what is measured is our own work. Prints one JSON object; best of
several rounds.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog
import uvloop

from pravega_common.runtime.clock import SystemClock
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.log_states import some_log
from tests.support.tier2_garbage import collect_all

rounds: Final = 5
chunk_bytes: Final = 16 << 20
view_bytes: Final = 1 << 20
chunk_count: Final = 24
reads_at_once: Final = 8
random_bytes: Final = 64 << 10
random_reads: Final = 512


async def no_barrier() -> None:
    """Returns at once."""


async def measure(url: str) -> dict[str, int]:
    chunks = make_chunk_storage(url)
    await chunks.start()
    storage = RollingStorage(chunks, random.getrandbits(16), SystemClock(), background=False)
    await storage.start(1, no_barrier, some_log)
    body = random.Random(1).randbytes(chunk_bytes)
    views = [memoryview(body)[start : start + view_bytes] for start in range(0, chunk_bytes, view_bytes)]
    total = chunk_bytes * chunk_count
    flushing = await _timed([_write(storage, number, views) for number in range(chunk_count)], at_once=1)
    offsets = range(0, total, view_bytes)
    reading = await _timed([storage.read(1, offset, view_bytes) for offset in offsets], at_once=reads_at_once)
    rng = random.Random(2)
    drawn = [rng.randrange(total // random_bytes) * random_bytes for _ in range(random_reads)]
    seeking = await _timed([storage.read(1, offset, random_bytes) for offset in drawn], at_once=reads_at_once)
    await storage.delete(1)
    await collect_all(storage)
    await storage.close()
    await chunks.close()
    return {
        "flush_MB_per_s": round(total / flushing / 1e6),
        "read_MB_per_s": round(total / reading / 1e6),
        "random_reads_per_s": round(random_reads / seeking),
    }


async def _write(storage: RollingStorage, number: int, views: list[memoryview]) -> None:
    await storage.write(1, number * chunk_bytes, views)


async def _timed(calls: Sequence[Coroutine[Any, Any, object]], at_once: int) -> float:
    began = time.perf_counter()
    for first in range(0, len(calls), at_once):
        await asyncio.gather(*calls[first : first + at_once])
    return time.perf_counter() - began


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    url = sys.argv[1] if len(sys.argv) > 1 else "memory:"
    results = [uvloop.run(measure(url)) for _ in range(rounds)]
    print(json.dumps({"url": url, **{key: max(one[key] for one in results) for key in results[0]}}))


if __name__ == "__main__":
    main()
