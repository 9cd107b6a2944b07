"""``python -m segment_service.maintenance COMMAND --config FILE``: repairs of a cluster by an operator."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import structlog

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_common.runtime import failpoints
from pravega_common.runtime.clock import SystemClock
from segment_service.config import SegmentStoreConfig
from segment_service.cpo_access import configured_cpo
from segment_service.maintenance import backup_command, doctor_command, restore_command
from segment_service.maintenance.cpo_rebuild import ClusterPlan, CPORebuild
from segment_service.maintenance.server_replacement import Progress, ServerReplacement
from segment_service.maintenance.tier2_access import open_tier2
from segment_service.plog.cluster_registration import asking_with
from segment_service.plog.plog_client import PlogSettings


async def rebuild_cpo(config: SegmentStoreConfig, *, replace: bool, dry_run: bool) -> ClusterPlan:
    """Register again what the CPO lost; the plan of it."""
    if config.tier1.folder is not None:
        raise ConfigurationError(
            f"tier1.url = {config.tier1.url}: logs in files need no registrations, so there is nothing to rebuild"
        )
    clock = SystemClock()
    cpo = configured_cpo(config, clock)
    try:
        async with open_tier2(config) as chunks:
            rebuild = CPORebuild(
                cpo,
                chunks,
                config.cluster.name,
                config.tier1.persistence_groups,
                PlogSettings(access=config.redis.access()),
                clock,
                config.cluster.lease_ms,
            )
            plan = await rebuild.plan(config.store.containers)
            if not dry_run:
                await rebuild.carry_out(plan, asking_with(config.redis.access()), replace=replace)
            return plan
    finally:
        await cpo.close()


async def replace_server(config: SegmentStoreConfig, group: str, old: str, new: str, *, dry_run: bool) -> None:
    """Replace a server of a group, and print how far the logs are until all have taken the new one in."""
    if config.tier1.folder is not None:
        raise ConfigurationError(f"tier1.url = {config.tier1.url}: logs in files have no servers to replace")
    clock = SystemClock()
    cpo = configured_cpo(config, clock)
    try:
        replacement = ServerReplacement(
            cpo, asking_with(config.redis.access()), clock, config.cluster.name, group, old, new
        )
        if dry_run:
            _, after = await replacement.plan()
        else:
            after = await replacement.register()
        servers = next(one.servers for one in after.groups if one.name == group)
        print(f"persistence group {group}: {', '.join(servers)}")
        if dry_run:
            print("nothing was changed (dry run)")
            return
        print("registered; this command may be interrupted and repeated", flush=True)
        last = None
        async for progress in replacement.follow():
            if progress != last:
                _print_progress(progress)
            last = progress
        print(f"{new} took the place of {old}: name it in the settings of all stores; {old} may be thrown away")
    finally:
        await cpo.close()


def _print_progress(progress: Progress) -> None:
    total = len(progress.admitted) + len(progress.waiting)
    if progress.problem:
        print(f"waiting: {progress.problem}", flush=True)
    else:
        waiting = ", ".join(str(one) for one in progress.waiting)
        text = f"logs that have the new server: {len(progress.admitted)} of {total}"
        print(text + (f"; waiting for those of containers {waiting}" if waiting else ""), flush=True)


def _print_plan(plan: ClusterPlan, *, is_done: bool) -> None:
    for warning in plan.warnings:
        print(f"warning: {warning}")
    for group in plan.groups:
        print(f"persistence group {group.name}: {', '.join(group.servers)}")
    for container in plan.containers:
        if container.metadata_plog is None:
            print(f"container {container.container_id}: never ran")
        else:
            print(
                f"container {container.container_id}: epoch {container.epoch}, {container.plogs} plogs, "
                f"metadata plog {container.metadata_plog}"
            )
    print("the control plane is registered again: start the stores" if is_done else "nothing was changed (dry run)")


def _replace(options: argparse.Namespace) -> int:
    config = SegmentStoreConfig.load(options.config)
    asyncio.run(replace_server(config, options.group, options.old, options.new, dry_run=options.dry_run))
    return 0


def _rebuild(options: argparse.Namespace) -> int:
    config = SegmentStoreConfig.load(options.config)
    plan = asyncio.run(rebuild_cpo(config, replace=options.replace, dry_run=options.dry_run))
    _print_plan(plan, is_done=not options.dry_run)
    return 0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="pravega-spark", description="Repairs of a cluster and of its data.")
    commands = parser.add_subparsers(dest="command", required=True)
    rebuild = commands.add_parser("rebuild-cpo", help="register again what the CPO lost; all stores must be stopped")
    rebuild.add_argument("--config", type=Path, required=True, help="settings of a store of the cluster")
    rebuild.add_argument("--replace", action="store_true", help="replace what the CPO still has")
    rebuild.add_argument("--dry-run", action="store_true", help="look and change nothing")
    rebuild.set_defaults(run=_rebuild, noun="cluster")
    replacing = commands.add_parser("replace-server", help="replace a server of a group for good, while stores run")
    replacing.add_argument("--config", type=Path, required=True, help="settings of a store of the cluster")
    replacing.add_argument("--group", required=True, help="the persistence group")
    replacing.add_argument("--old", required=True, help="address of the server that is gone, or retires")
    replacing.add_argument("--new", required=True, help="address of an empty server")
    replacing.add_argument("--dry-run", action="store_true", help="look and change nothing")
    replacing.set_defaults(run=_replace, noun="cluster")
    backup_command.add_to(commands)
    doctor_command.add_to(commands)
    restore_command.add_to(commands)
    options = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        failpoints.arm_from_environment()
        sys.exit(options.run(options))
    except KeyboardInterrupt:
        sys.exit(f"pravega-spark {options.noun} {options.command}: interrupted; it may be repeated")
    except (PravegaError, OSError) as error:  # also a disk that is full, or a folder that may not be read
        sys.exit(f"pravega-spark {options.noun} {options.command}: {error or type(error).__name__}")


if __name__ == "__main__":
    main()
