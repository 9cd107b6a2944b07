"""Carries out runs of the fault drill: one fault after the other on a cluster that works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.drills.faults.cluster import FaultCluster, running
from tests.drills.faults.faults import Fault
from tests.drills.faults.watch import METRIC, Sighting, Watch
from tests.drills.store.audit import Tally
from tests.drills.store.load import Load
from tests.support.eventually import eventually_blocking

writers: Final = 1
flush_pause_s: Final = 0.2
"""The load is small: the table is about what is told, not about speed."""
start_time_max_s: Final = 120.0
recovery_time_max_s: Final = 180.0
doctor_time_max_s: Final = 30.0
look_s: Final = 0.1


@dataclass
class Row:
    """What was told about one fault, after how many seconds."""

    fault: str
    what: str
    sightings: dict[str, dict[str, Sighting]] = field(default_factory=dict)
    """By source and word."""
    doctor: list[str] = field(default_factory=list)
    """The checks of ``pravega-spark doctor`` that failed during the fault."""
    lasted_s: float = 0.0
    well_after_s: float = 0.0
    """From the end of the fault, of one that mends itself from its begin, until nobody named anything."""
    written_after_s: float = 0.0
    """From the end of the fault to the slowest writer's acknowledgement of what it wrote after it."""
    untold: list[str] = field(default_factory=list)
    """Sources that should have told and did not."""


@dataclass
class FaultResult:
    """All rows, and what the load lost."""

    rows: list[Row] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    failure: str = ""

    @property
    def good(self) -> bool:
        rows = all(not row.untold for row in self.rows)
        return rows and all(tally.good for tally in self.tallies) and not self.failure


def run(
    folder: Path, faults: Iterable[Fault], tier2: str, *, asks_doctor: bool, tell: Callable[[str], None]
) -> FaultResult:
    """Inflict the faults, on one cluster for each kind that they need."""
    result = FaultResult()
    chosen = [fault for fault in faults if fault.tier2 in ("", tier2)]
    for kind in dict.fromkeys(fault.kind for fault in chosen):
        some = [fault for fault in chosen if fault.kind == kind]
        try:
            with running(folder / kind, kind, tier2) as cluster:
                try:
                    _run_on(cluster, some, result, asks_doctor, tell)
                except BaseException:
                    tell(cluster.standalone.log_tail())
                    raise
        except (AssertionError, TimeoutError) as error:
            result.failure = f"{error}"
            tell(f"{error}")
    return result


def _run_on(
    cluster: FaultCluster, faults: Iterable[Fault], result: FaultResult, asks_doctor: bool, tell: Callable[[str], None]
) -> None:
    load = Load(cluster.standalone.controller_uri, writers=writers, readers=0)
    for writer in load.writers:
        writer.pause_s = flush_pause_s
    load.start()
    load.first_acks(time.monotonic())
    healthy = _failed_checks(cluster) if asks_doctor else []
    with Watch(cluster.pages(), cluster.context) as watch:
        _wait_calm(watch, time.monotonic(), start_time_max_s)
        for fault in faults:
            row = _inflict(cluster, load, watch, fault, asks_doctor)
            row.doctor = [name for name in row.doctor if name not in healthy]
            result.rows.append(row)
            tell(f"{fault.name}: {_summary(row)}")
    load.stop()
    result.tallies.append(load.audit())


def _inflict(cluster: FaultCluster, load: Load, watch: Watch, fault: Fault, asks_doctor: bool) -> Row:
    row = Row(fault.name, fault.what)
    wanted = {source: frozenset(words.split("|")) for source, words in fault.told.items()}
    wanted[METRIC] = frozenset((fault.metric,))
    begun_s = time.monotonic()

    def begins() -> None:
        nonlocal begun_s
        begun_s = time.monotonic()
        watch.forget(fault.metric)

    def untold() -> list[str]:
        return [source for source, words in wanted.items() if not watch.has_said(source, words)]

    with fault.inflict(cluster, begins):
        while (untold() or fault.whole) and time.monotonic() - begun_s < fault.hold_s:
            time.sleep(look_s)
        row.untold = untold()
        if asks_doctor and not fault.mends_itself:
            row.doctor = _failed_checks(cluster)
        row.lasted_s = time.monotonic() - begun_s
    ended_s = time.monotonic()
    row.written_after_s = max(load.first_acks(ended_s))
    row.well_after_s = _wait_calm(watch, ended_s, recovery_time_max_s)
    if fault.mends_itself:
        row.well_after_s += ended_s - begun_s
    for (source, word), sighting in watch.sightings.items():
        row.sightings.setdefault(source, {})[word] = sighting
    return row


def _wait_calm(watch: Watch, since_s: float, time_max_s: float) -> float:
    """Wait until nobody names anything in answer to a question that was put since then; returns the seconds."""
    try:
        eventually_blocking(lambda: watch.is_calm(since_s), "a cluster that is well", time_max_s)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; it says {watch.now()}") from None
    return time.monotonic() - since_s


def _failed_checks(cluster: FaultCluster) -> list[str]:
    """The checks of ``pravega-spark doctor`` that fail, each once and without the address of the service."""
    command = [sys.executable, "-m", "pravega_spark", "doctor", "--json"]
    uri = cluster.standalone.controller_uri
    try:
        done = subprocess.run(
            [*command, "--controller", uri], capture_output=True, text=True, timeout=doctor_time_max_s, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"no end within {doctor_time_max_s:.0f} s"]
    names = [check["check"] for check in json.loads(done.stdout)["checks"] if check["ok"] is False]
    return list(dict.fromkeys(re.sub(r" \S+:\d+$", "", name) for name in names))


def _summary(row: Row) -> str:
    said = {
        source: {word: round(sighting.first_s, 1) for word, sighting in words.items()}
        for source, words in row.sightings.items()
    }
    untold = f", NOT TOLD by {row.untold}" if row.untold else ""
    times = f"well after {row.well_after_s:.1f} s, written after {row.written_after_s:.1f} s"
    return f"{said}, doctor {row.doctor}, {times}{untold}"
