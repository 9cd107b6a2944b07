"""Runs ``pravega-spark store restore``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from segment_service.config import SegmentStoreConfig
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.cpo_access import configured_cpo
from segment_service.file_log.folder import FileLogFolder
from segment_service.maintenance import backup_files
from segment_service.maintenance.backup_restore import BackupRestore, check_settings
from segment_service.maintenance.doctor_command import log_source, say
from segment_service.maintenance.log_reading import LogSource
from segment_service.maintenance.log_restart import FileLogRestart, RedisLogRestart
from segment_service.maintenance.restore_plan import ListedSegments, RestorePlan
from segment_service.maintenance.store_restore import ContainerOutcome, StoreRestore
from segment_service.maintenance.tier2_access import open_tier2
from segment_service.maintenance.tier2_restore import LogRestart
from segment_service.plog.cluster_registration import asking_with
from segment_service.plog.plog_client import PlogSettings

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    restore = commands.add_parser("restore", help="start containers from Tier 2 alone; all stores must be stopped")
    restore.add_argument("--config", type=Path, required=True, help="settings of a store of the cluster")
    restore.add_argument("--container", type=int, action="append", default=[], help="only this one; may be repeated")
    restore.add_argument("--from", type=Path, dest="backup", help="restore this backup into empty places instead")
    restore.add_argument("--yes", action="store_true", help="do it; else only the plan is printed")
    restore.add_argument("--json", action="store_true", help="print one JSON document")
    restore.set_defaults(run=_run, noun="store")


def _run(options: argparse.Namespace) -> int:
    config = SegmentStoreConfig.load(options.config)
    if options.backup is not None:
        if options.container:
            raise ConfigurationError("a backup is restored as a whole: leave --container out")
        return asyncio.run(_restore_backup(config, options.backup, is_agreed=options.yes, as_json=options.json))
    return asyncio.run(_restore_from_tier2(config, options.container, is_agreed=options.yes, as_json=options.json))


async def _restore_from_tier2(config: SegmentStoreConfig, only: list[int], *, is_agreed: bool, as_json: bool) -> int:
    """The exit status. What is lost is printed also if the restore fails or is interrupted: one that is made again
    does not know any more what this one corrected."""
    is_done = False
    async with _opened(config) as places:
        restore = StoreRestore(places.cpo, places.chunks, places.source, places.restart, places.clock)
        outcomes = await restore.plan(config.store.containers, only)
        try:
            for one in outcomes if not as_json else ():
                print_outcome(one)
            sys.stdout.flush()
            plans = [one.plan for one in outcomes if one.plan is not None]
            for plan in plans if is_agreed else ():
                await restore.carry_out(plan)
            is_done = is_agreed or not plans
        finally:
            if as_json:
                print(json.dumps({"is_done": is_done, "containers": [asdict(one) for one in outcomes]}, indent=2))
    if not as_json:
        print(
            "restored: start the stores" if is_done else "nothing was changed: give --yes to lose what is named above"
        )
    return 0 if is_done else 1


async def _restore_backup(config: SegmentStoreConfig, folder: Path, *, is_agreed: bool, as_json: bool) -> int:
    """The exit status."""
    say(f"verifying {folder}")
    header = backup_files.verify(folder)
    check_settings(header, config.store.containers)
    async with _opened(config) as places:
        restore = BackupRestore(folder, places.cpo, places.chunks, places.source, places.restart, places.clock, say)
        waiting = await restore.check_place(header)
        if is_agreed:
            await restore.carry_out(header)
    if as_json:
        print(json.dumps({"is_done": is_agreed, "containers": [part.container_id for part in waiting]}, indent=2))
    else:
        print(f"backup {header.backup_id} of cluster {header.cluster}: every file is as it was written")
        print("restored: start the stores" if is_agreed else "nothing was changed: give --yes to restore it")
    return 0 if is_agreed else 1


@dataclass(frozen=True, slots=True)
class Places:
    """The parts of a cluster that a restore writes to."""

    cpo: ControlPlaneOracle
    chunks: ChunkStorage
    source: LogSource
    restart: LogRestart
    clock: Clock


@contextlib.asynccontextmanager
async def _opened(config: SegmentStoreConfig) -> AsyncIterator[Places]:
    clock = SystemClock()
    cpo = configured_cpo(config, clock)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cpo.close)
        chunks = await stack.enter_async_context(open_tier2(config))
        if config.tier1.folder is not None:
            folder = FileLogFolder(config.tier1.folder, plog_bytes=config.tier1.plog_bytes)
            await folder.start()
            stack.push_async_callback(folder.stop)
            yield Places(cpo, chunks, log_source(config), FileLogRestart(folder, clock), clock)
            return
        access = config.redis.access()
        groups, containers = config.tier1.persistence_groups, config.store.containers
        settings = PlogSettings(
            block_bytes=config.tier1.plog_bytes, allow_unsafe_redis=config.tier1.allow_unsafe_redis, access=access
        )
        restart = RedisLogRestart(cpo, config.cluster.name, groups, containers, settings, clock, asking_with(access))
        yield Places(cpo, chunks, log_source(config), restart, clock)


def print_outcome(outcome: ContainerOutcome) -> None:
    """Print the fate of one container for people."""
    plan = outcome.plan
    if plan is None:
        print(f"container {outcome.container_id}: nothing to restore: {outcome.reason}")
        return
    print(f"container {plan.container_id}: {plan.segments} segments with {plan.length} bytes are served again")
    print(
        f"  lost: operations above {plan.table_high_water} as far as Tier 2 does not show their effect, those above "
        f"{plan.high_water} in any case"
    )
    _print_listed(plan.shorter, "lose bytes that the metadata table knows of", "bytes lost")
    _print_listed(plan.damaged, "have damaged or missing manifests and are quarantined", "bytes lost")
    _print_listed(plan.nameless, "have no name (made after the last flush of the table)", "bytes kept, not readable")
    if plan.maybe_merged.count:
        print(
            f"  {plan.maybe_merged.count} transactions come back open, and their {plan.maybe_merged.length} bytes may "
            "be in their streams already: read these before you let the transactions be committed"
        )
        for one in plan.maybe_merged.items:
            print(f"    {one.name}")
    _print_changes(plan)


def _print_listed(listed: ListedSegments, what: str, bytes_are: str) -> None:
    if not listed.count:
        return
    print(f"  {listed.count} segments {what}: {listed.length} {bytes_are}")
    for one in listed.items:
        print(f"    {one.name}: length {one.known}, Tier 2 has {one.held}")
    if listed.count > len(listed.items):
        print(f"    and {listed.count - len(listed.items)} more")


def _print_changes(plan: RestorePlan) -> None:
    if plan.finished:
        print(f"  {plan.finished} names leave the metadata table: deleted or merged in Tier 2 already")
    if plan.indexes:
        print(f"  {plan.indexes} event indexes are dropped, and made again as their segments grow")
