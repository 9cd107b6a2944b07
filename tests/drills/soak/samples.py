"""Reads the sizes of a running standalone: processes, Redis, Tier 2, and the controller's own tables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from redis import Redis

from pravega_spark.standalone.process import StandaloneProcess
from tests.bench.processes import memory_mib
from tests.drills.soak import system_tables
from tests.drills.soak.load import SCOPE, STREAM
from tests.support.pages import store_samples
from tests.support.processes import stat_of

PROCESSES: Final = ("controller", "segment-store-0", "redis")
threads_field: Final = 17
"""Of the fields behind the name in ``/proc/<pid>/stat``."""
SEGMENTS_METRIC: Final = "pravega_container_segments"
CACHE_METRIC: Final = "pravega_store_cache_bytes"
MAP_CACHE_METRIC: Final = "pravega_store_map_cache_bytes"
HEAP_METRIC: Final = "pravega_store_heap_used_bytes"
BLOCKS_METRIC: Final = "pravega_store_python_blocks"

Sample = dict[str, float]


def take(cluster: StandaloneProcess) -> Sample:
    sample: Sample = {}
    for name in PROCESSES:
        pid = cluster.pid(name)
        sample[f"{name}: RSS MiB"] = memory_mib(pid)
        sample[f"{name}: files"] = len(os.listdir(f"/proc/{pid}/fd"))
        sample[f"{name}: threads"] = int(stat_of(pid)[threads_field])
    with Redis(unix_socket_path=str(cluster.ready()["redis"]).removeprefix("unix:")) as redis:
        sample["Redis: MiB"] = redis.info("memory")["used_memory"] / (1 << 20)
        sample["Redis: keys"] = redis.dbsize()
    sizes = list(_file_sizes(cluster.folder / "data" / "tier2"))
    sample["Tier 2: files"], sample["Tier 2: MiB"] = len(sizes), sum(sizes) / (1 << 20)
    metrics: dict[str, float] = {}
    for one in store_samples(cluster):
        metrics[one.name] = metrics.get(one.name, 0.0) + one.value  # of all its labels
    sample["segment-store-0: heap MiB"] = metrics[HEAP_METRIC] / (1 << 20)
    sample["segment-store-0: thousand blocks"] = metrics[BLOCKS_METRIC] / 1e3
    sample["segments in memory"] = metrics[SEGMENTS_METRIC]
    sample["cache MiB"] = metrics[CACHE_METRIC] / (1 << 20)
    sample["cache of maps MiB"] = metrics[MAP_CACHE_METRIC] / (1 << 20)
    port = int(str(cluster.options["segment_store_port"]))
    return sample | asyncio.run(system_tables.sizes(port, SCOPE, STREAM))


def _file_sizes(folder: Path) -> Iterator[int]:
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                continue  # It was removed meanwhile.
