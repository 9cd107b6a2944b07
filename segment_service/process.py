"""Runs one segment store in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path
from typing import Final

import structlog
import uvloop

from pravega_common.runtime import failpoints
from pravega_common.runtime.clock import SystemClock
from pravega_common.runtime.heap import keep_freed_memory
from pravega_common.runtime.lasting_imports import lasting_imports
from pravega_common.services.logs import LogSection, set_up_log
from pravega_common.services.ready_file import make_room_for_ready_file, remove_ready_file, write_ready_file
from pravega_common.services.systemd import SystemdNotices
from segment_service.cache.manager import appended_bytes_max_default
from segment_service.config import SegmentStoreConfig
from segment_service.service import SegmentStoreProcess
from segment_service.tier1_memory import check_tier1_memory

collector_thresholds: Final = (50_000, 20, 100)
"""Of Python's cyclic garbage collector. The append path makes no cycles, but very many objects that live until Tier 2
has their bytes: with the default thresholds looking through them costs a quarter of the time of small appends. What
other paths make goes by time: ``services/cycle_collector.py``."""


def run_segment_store(config_path: Path, ready_file: Path | None = None) -> None:
    """Run a store with the settings of a file until a signal stops it; raises what made it fail.

    ``ready_file`` has the store's id, host and port, as JSON, while it serves.
    """
    set_up_log(LogSection())
    failpoints.arm_from_environment()
    config = SegmentStoreConfig.load(config_path)
    set_up_log(config.log)
    structlog.get_logger().info("settings", file=str(config_path), **config.model_dump())
    # Of what appends brought that much stays in memory, flushed and not, and is replaced all the time.
    flushed_bytes_max = min(appended_bytes_max_default, config.cache.memory_bytes_max)
    keep_freed_memory(flushed_bytes_max + config.store.unflushed_bytes_max)
    gc.set_threshold(*collector_thresholds)
    uvloop.run(_run(config, ready_file))


async def _run(config: SegmentStoreConfig, ready_file: Path | None) -> None:
    if ready_file is not None:
        make_room_for_ready_file(ready_file)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await check_tier1_memory(config)
    with lasting_imports():  # it loads the clients of those servers that the settings name
        process = SegmentStoreProcess(config)
    process.on_failure(lambda _: stop.set())
    await process.start()
    notices = SystemdNotices(lambda: process.health.is_alive, SystemClock())
    await notices.start()
    try:
        if ready_file is not None:
            host, port = process.published
            write_ready_file(ready_file, {"id": process.store_id, "host": host, "port": port})
        await stop.wait()
    finally:
        if ready_file is not None:
            remove_ready_file(ready_file)
    await notices.stop()
    await process.stop()
    if process.failure is not None:
        raise process.failure
