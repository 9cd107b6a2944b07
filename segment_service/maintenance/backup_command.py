"""Runs ``pravega-spark store backup``."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pravega_common.runtime.clock import SystemClock
from segment_service.config import SegmentStoreConfig
from segment_service.maintenance.doctor_command import log_source, say
from segment_service.maintenance.store_backup import BackupOutcome, StoreBackup
from segment_service.maintenance.tier2_access import open_tier2

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
    for container_id, segment_id in outcome.damaged_indexes:
        print(
            f"container {container_id}: the attribute index of segment {segment_id} is damaged in Tier 2, and so in "
            "the backup: writers that it alone knows are refused there as here"
        )
    print(f"backup {outcome.header.backup_id} in {options.to}: {outcome.files} files")
    return 0


async def back_up(config: SegmentStoreConfig, folder: Path) -> BackupOutcome:
    """A backup of the cluster whose settings these are."""
    async with open_tier2(config) as chunks:
        backup = StoreBackup(chunks, log_source(config), folder, SystemClock(), say)
        return await backup.run(config.cluster.name, config.store.containers)
