"""Implements ``scripts/drill restore``: loses Tier 1 in three ways, restores, and counts what is missing.

Each case runs on a standalone of its own under a steady load. The acknowledged events are compared with those that are
read after the restore: after a clean stop, after everything was killed in the middle of the load, and from a backup
that was taken while the load ran.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from pravega_common.errors import PravegaError
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.eventually import eventually_blocking
from tests.support.standalone_operator import (
    create_stream,
    destroy_tier1,
    destroy_tier2,
    keys,
    kill_everything,
    read,
    servers_alone,
    store_command,
    wait_until_in_tier2,
)

events_before: Final = 4_000
"""Acknowledged before anything is lost."""
load_time_max_s: Final = 120.0


@dataclass
class Figures:
    """What a case found.

    ``lost``: acknowledged events that are not read. ``lost_s``: the age of the oldest of them when Tier 1 was lost.
    ``disordered``: keys whose events are not those of the load in their order, up to some event.
    """

    acknowledged: int
    lost: int
    lost_s: float
    disordered: int
    backup_s: float
    restore_s: float


class SteadyLoad:
    """Writes numbered events on a thread of its own, twenty at a time, and keeps when each was acknowledged."""

    def __init__(self, cluster: StandaloneProcess) -> None:
        self.acked_s: list[float] = []
        """By the number of the event."""
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, events: int) -> None:
        eventually_blocking(lambda: len(self.acked_s) >= events, f"{events} events", load_time_max_s)

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.ask_to_stop()
        self._thread.join(load_time_max_s)

    def _run(self) -> None:
        with StreamClient(self._cluster.controller_uri) as client, EventWriter(client, "s", "t") as writer:
            while not self._stop.is_set():
                first = len(self.acked_s)
                try:
                    for number in range(first, first + keys):
                        writer.write(b"%d" % number + bytes(500), str(number % keys))
                    writer.flush()
                except PravegaError:
                    return
                self.acked_s += [time.monotonic()] * keys


def clean_stop(cluster: StandaloneProcess, folder: Path) -> Figures:
    load = SteadyLoad(cluster)
    load.wait(events_before)
    load.stop()
    cluster.stop()
    return _restored(cluster, load.acked_s, time.monotonic())


def crash(cluster: StandaloneProcess, folder: Path) -> Figures:
    """The names of segments are in Tier 2 after half a minute at the latest, their bytes after a second."""
    load = SteadyLoad(cluster)
    load.wait(events_before)
    wait_until_in_tier2(cluster)
    acked, lost_s = list(load.acked_s), time.monotonic()
    kill_everything(cluster)
    load.ask_to_stop()  # It waits for the store; once that is back, its last twenty events go behind what is lost.
    return _restored(cluster, acked, lost_s)


def backup(cluster: StandaloneProcess, folder: Path) -> Figures:
    """Only what was acknowledged before the backup began is promised."""
    load = SteadyLoad(cluster)
    load.wait(events_before)
    acked, began_s = list(load.acked_s), time.monotonic()
    store_command(cluster, "backup", str(folder / "backup"))
    backup_s = time.monotonic() - began_s
    load.stop()
    cluster.stop()
    destroy_tier2(cluster)
    return _restored(cluster, acked, began_s, ("--from", str(folder / "backup")), backup_s)


def _restored(
    cluster: StandaloneProcess,
    acked_s: list[float],
    lost_s: float,
    arguments: tuple[str, ...] = (),
    backup_s: float = 0,
) -> Figures:
    """Lose Tier 1, restore, start, read and compare."""
    destroy_tier1(cluster)
    with servers_alone(cluster):
        began_s = time.monotonic()
        store_command(cluster, "restore", *arguments, "--yes")
        restore_s = time.monotonic() - began_s
    cluster.start()
    found = {key: [number for number in some if number < len(acked_s)] for key, some in read(cluster).items()}
    in_order = {key: list(range(key, key + keys * len(found[key]), keys)) for key in range(keys)}
    numbers = {number for some in found.values() for number in some}
    missing = [number for number in range(len(acked_s)) if number not in numbers]
    oldest_s = lost_s - acked_s[missing[0]] if missing else 0.0
    disordered = sum(found[key] != in_order[key] for key in range(keys))
    return Figures(len(acked_s), len(missing), round(oldest_s, 2), disordered, round(backup_s, 1), round(restore_s, 1))


CASES: Final[dict[str, tuple[Callable[[StandaloneProcess, Path], Figures], float]]] = {
    "clean-stop": (clean_stop, 0.0),
    "crash": (crash, 10.0),
    "backup": (backup, 0.0),
}
"""Each with the age that a lost event may have, in seconds: none may be lost, or what Tier 2 had not got yet."""


def run(name: str, folder: Path) -> tuple[Figures, bool]:
    """The figures of a case, and whether they are as promised."""
    case, lost_s_max = CASES[name]
    with StandaloneProcess(folder / "cluster") as cluster:
        create_stream(cluster)
        figures = case(cluster, folder)
    return figures, figures.lost_s <= lost_s_max and not figures.disordered and (lost_s_max > 0 or not figures.lost)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/drill restore", description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help=f"separated by commas: {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    args = parser.parse_args()
    names = args.cases.split(",")
    if not set(names) <= CASES.keys():
        parser.error(f"--cases {args.cases}: there are {', '.join(CASES)}")
    results, all_good, console = {}, True, Console()
    for name in names:
        with tempfile.TemporaryDirectory(prefix="pravega-restore-drill-") as folder:
            figures, is_good = run(name, Path(folder))
        results[name], all_good = asdict(figures), all_good and is_good
        console.print(f"{name:<11} {figures}{'' if is_good else '  NOT AS PROMISED'}", markup=False)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
