"""Runs ``pravega-spark store backup``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pravega_common.runtime.clock import SystemClock
from segment_service.config import SegmentStoreConfig
from segment_service.file_log.folder import FileLogFolder
from segment_service.maintenance.doctor_command import say
from segment_service.maintenance.log_reading import LogSource
from segment_service.maintenance.log_restart import FileLogSource
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.maintenance.store_backup import BackupOutcome, StoreBackup
from segment_service.maintenance.tier2_access import open_tier2
from segment_service.plog.plog_client import PlogSettings

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    backup = commands.add_parser("backup", help="copy a cluster into an empty folder; stores may run")
    backup.add_argument("to", type=Path, help="an empty folder, or one that is not there yet")
    backup.add_argument("--config", type=Path, required=True, help="settings of a store of the cluster")
    backup.add_argument("--json", action="store_true", help="print one JSON document")
    backup.set_defaults(run=_run, noun="store")


def _run(options: argparse.Namespace) -> int:
    config = SegmentStoreConfig.load(options.config)
    outcome = asyncio.run(back_up(config, options.to))
    if options.json:
        print(json.dumps(asdict(outcome), indent=2))
        return 0
    for container_id, segment_id in outcome.damaged:
        print(f"container {container_id}: segment {segment_id} is damaged in Tier 2, and so in the backup")
    print(f"backup {outcome.header.backup_id} in {options.to}: {outcome.files} files")
    return 0


async def back_up(config: SegmentStoreConfig, folder: Path) -> BackupOutcome:
    """A backup of the cluster whose settings these are."""
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        logs: LogSource
        if config.tier1.folder is not None:  # a log in files is read by its owner alone: the store must be stopped
            files = FileLogFolder(config.tier1.folder, plog_bytes=config.tier1.plog_bytes)
            await files.start()
            stack.push_async_callback(files.stop)
            logs = FileLogSource(files, clock)
        else:
            logs = RedisLogSource(config.tier1.persistence_groups, config.store.containers, PlogSettings())
        chunks = await stack.enter_async_context(open_tier2(config))
        return await StoreBackup(chunks, logs, folder, clock, say).run(config.cluster.name, config.store.containers)
