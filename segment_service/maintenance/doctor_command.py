"""Runs ``pravega-spark store doctor``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from segment_service.config import SegmentStoreConfig
from segment_service.cpo_access import configured_cpo
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.file_log_reading import FileLogSource
from segment_service.maintenance.findings import ContainerReport, DataFinding, StoreReport
from segment_service.maintenance.log_reading import LogSource
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.maintenance.tier2_access import open_tier2
from segment_service.plog.plog_client import PlogSettings

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    doctor = commands.add_parser("doctor", help="examine Tier 2 and Tier 1; exit status 1 if something is wrong")
    doctor.add_argument("--config", type=Path, required=True, help="settings of a store of the cluster")
    doctor.add_argument("--container", type=int, action="append", default=[], help="only this one; may be repeated")
    doctor.add_argument("--deep", action="store_true", help="read every chunk and check its checksums")
    doctor.add_argument("--tier2-only", action="store_true", help="leave Tier 1 alone")
    doctor.add_argument("--json", action="store_true", help="print one JSON document")
    doctor.set_defaults(run=_doctor, noun="store")


def say(text: str) -> None:
    """Print progress for people, beside the result."""
    print(text, file=sys.stderr, flush=True)


def _doctor(options: argparse.Namespace) -> int:
    config = SegmentStoreConfig.load(options.config)
    report = asyncio.run(examine(config, options.container, deep=options.deep, with_tier1=not options.tier2_only))
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print_report(report)
    return 1 if report.count else 0


async def examine(config: SegmentStoreConfig, only: list[int], *, deep: bool, with_tier1: bool) -> StoreReport:
    """The examination of the cluster whose settings these are."""
    logs = log_source(config) if with_tier1 else None
    async with contextlib.AsyncExitStack() as stack:
        cpo = _existing_cpo(config)
        if cpo is not None:
            stack.push_async_callback(cpo.close)
        chunks = await stack.enter_async_context(open_tier2(config))
        doctor = StoreDoctor(chunks, logs, SystemClock(), say, cpo)
        return await doctor.examine(config.store.containers, only, deep=deep)


def _existing_cpo(config: SegmentStoreConfig) -> ControlPlaneOracle | None:
    """The CPO of the settings; ``None`` for one in a file that is not there: a look would make it."""
    address = config.cluster.cpo
    if address.startswith("file:") and not Path(address.removeprefix("file:")).exists():
        return None
    return configured_cpo(config, SystemClock())


def log_source(config: SegmentStoreConfig) -> LogSource:
    """The logs that the settings name; stores may run."""
    if config.tier1.folder is not None:
        return FileLogSource(config.tier1.folder)
    return RedisLogSource(
        config.tier1.persistence_groups, config.store.containers, PlogSettings(access=config.redis.access())
    )


def _print_report(report: StoreReport) -> None:
    for finding in report.findings:
        _print_finding(finding)
    for container in report.containers:
        _print_container(container)
    print("sound" if not report.count else f"findings: {report.count}")


def _print_container(report: ContainerReport) -> None:
    where = f"container {report.container_id}"
    if not report.epoch and report.log is None and not report.findings:
        print(f"{where}: never ran")
        return
    orphans = "unknown" if report.orphans is None else str(report.orphans)
    print(
        f"{where}: epoch {report.epoch}, log {report.identity or 'unknown'}, high water {report.high_water}, metadata "
        f"table of epoch {report.table_epoch} with {report.table_entries} segments as of {report.table_high_water}"
    )
    print(
        f"  Tier 2: {report.segments} segments, {report.chunks} chunks, {report.length} bytes, "
        f"{report.table_indexes} key indexes of tables, {report.attribute_indexes} indexes of writers, "
        f"orphans: {orphans}"
    )
    if report.log is not None:
        log = report.log
        print(
            f"  Tier 1: log {log.identity}, operations {log.first_operation} to {log.last_operation} of epoch "
            f"{log.epoch}, {log.frames} frames, {log.length} bytes"
        )
    elif report.log_note:
        print(f"  {report.log_note}")
    for finding in report.findings:
        _print_finding(finding)
    if report.more_findings:
        print(f"  and {report.more_findings} findings more")


def _print_finding(finding: DataFinding) -> None:
    name = f" ({finding.segment})" if finding.segment else ""
    print(f"  {finding.kind}: {finding.text}{name}\n    remedy: {finding.remedy}")
