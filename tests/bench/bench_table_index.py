"""Measures a table of many keys: ``python -m tests.bench.bench_table_index --keys 1000000 --form memory paged``.

A container with its log in memory and Tier 2 in a directory; the table gets its keys (16 bytes, values of 100 bytes) in
requests of 500, then random ones of them one at a time, and pages of 100 entries from random places. Reports the
latencies of both, the longest time for which the event loop stood still meanwhile, that of one full collection of
garbage, the memory of the process beyond what it had before, and, after the container started again, the time until
the first answer. The collector is set as a store's. Prints a JSON object for each form of the index and
number of keys, and a table on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from segment_service.contracts.table_store import TableEntry
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.process import collector_thresholds
from segment_service.tables.table_extension import TableExtension
from tests.bench.bench_inactive_segments import DirectoryKit, percentile, resident_mib
from tests.bench.tables import beside_first

table: Final = "scope/table"
calls: Final = 3_000
batch_keys: Final = 500
page_entries: Final = 100
value: Final = b"v" * 100
look_s: Final = 0.001


class StandStill:
    """Notes the longest time between two turns of the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(look_s)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - look_s)

    def take(self) -> float:
        """In ms, since the last call."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return round(longest_s * 1000, 1)

    def stop(self) -> None:
        self._task.cancel()


def key_of(number: int) -> bytes:
    return b"key-%012d" % number


async def timed(call: Callable[[], Awaitable[Any]]) -> list[float]:
    """Seconds of each of some calls, one after the other."""
    latencies: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        await call()
        latencies.append(time.perf_counter() - began)
    return latencies


async def measure(folder: Path, keys: int, form: str) -> dict[str, Any]:
    kit = DirectoryKit(folder, MetadataTableConfig())
    await kit.files.start()
    before = resident_mib()
    container = await kit.open()
    tables = TableExtension(container, maps=container if form == "paged" else None)
    await tables.create_table(table)
    rng, still = random.Random(1), StandStill()
    began = time.perf_counter()
    for first in range(0, keys, batch_keys):
        await tables.put(table, [TableEntry(key_of(number), value) for number in range(first, first + batch_keys)])
    result: dict[str, Any] = {"form": form, "keys": keys, "load_s": round(time.perf_counter() - began, 1)}
    result["load_stand_still_ms"] = still.take()
    began = time.perf_counter()
    result["memory_mib"] = round(resident_mib() - before, 1)  # collects garbage first
    result["collection_ms"] = round((time.perf_counter() - began) * 1000, 1)
    still.take()
    began = time.perf_counter()
    await tables.iterate(table, page_entries)
    result["first_page_ms"] = round((time.perf_counter() - began) * 1000, 1)
    result["first_page_stand_still_ms"] = still.take()
    puts = await timed(lambda: tables.put(table, [TableEntry(key_of(rng.randrange(keys)), value)]))
    pages = await timed(lambda: tables.iterate(table, page_entries, rng.randbytes(32)))
    result |= {"put_p50_ms": percentile(puts, 0.5), "put_p99_ms": percentile(puts, 0.99)}
    result |= {"page_p50_ms": percentile(pages, 0.5), "page_p99_ms": percentile(pages, 0.99)}
    result["stand_still_ms"] = still.take()
    await container.stop()
    container = await kit.open()
    tables = TableExtension(container, maps=container if form == "paged" else None)
    still.take()
    began = time.perf_counter()
    await tables.get(table, [key_of(0)])
    result["usable_after_restart_ms"] = round((time.perf_counter() - began) * 1000, 1)
    result["restart_stand_still_ms"] = still.take()
    still.stop()
    await container.stop()
    await kit.files.close()
    return result


def run(folder: str, keys: int, form: str) -> Any:
    """The part of a process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.freeze()
    gc.set_threshold(*collector_thresholds)
    return uvloop.run(measure(Path(folder), keys, form))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--form", nargs="+", choices=("memory", "paged"), default=["memory", "paged"])
    arguments = parser.parse_args()
    results = []
    for form, keys in itertools.product(arguments.form, arguments.keys):
        with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append({"table": f"{keys:,} {form}", **pool.apply(run, (folder, keys, form))})
            print(json.dumps(results[-1]), flush=True)
    print(beside_first("Tables by their keys and the form of their index", results, "table"), file=sys.stderr)


if __name__ == "__main__":
    main()
