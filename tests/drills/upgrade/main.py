"""Implements ``scripts/drill upgrade``: brings a cluster from an older commit to this tree, service by service.

Writers, a writer of transactions and readers work on while each store, then each controller is stopped and started from
the new tree. Afterwards the stream is read and compared with what was promised.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.drills.store.audit import Tally
from tests.drills.store.load import Load
from tests.drills.upgrade.cluster import UpgradeCluster, unpacked
from tests.support.repository import ROOT

quiet_s: Final = 2.0
"""Of undisturbed load before each step, and after the last one."""


@dataclass
class UpgradeResult:
    """One run: what was promised and found, and seconds by service."""

    tally: Tally = field(default_factory=Tally)
    ready_s: dict[str, float] = field(default_factory=dict)
    """From the signal to the readiness of the new process."""
    first_ack_s: dict[str, float] = field(default_factory=dict)
    """From the signal to the slowest writer's next acknowledgement of what it wrote after it."""
    longest_flush_s: float = 0.0
    client_errors: int = 0
    failure: str = ""

    @property
    def good(self) -> bool:
        return self.tally.good and not self.failure


def run(folder: Path, old: Path, tell: Callable[[str], None] = lambda _: None, new: Path = ROOT) -> UpgradeResult:
    """Start the old cluster and its load, replace each service, stop the load, and count."""
    result = UpgradeResult()
    cluster = UpgradeCluster(folder, old)
    try:
        load = Load(cluster.controller_uri)
        load.start()
        load.first_acks(time.monotonic())
        for service in cluster.services:
            time.sleep(quiet_s)
            began_s = time.monotonic()
            cluster.replace(service, new)
            result.ready_s[service.name] = time.monotonic() - began_s
            result.first_ack_s[service.name] = max(load.first_acks(began_s))
            tell(f"{service.name}: ready after {result.ready_s[service.name]:.1f} s")
        time.sleep(quiet_s)
        load.stop()
        result.longest_flush_s = max(end_s - begin_s for one in load.writers for begin_s, end_s in one.flushes)
        result.client_errors = sum(len(worker.errors) for worker in load.workers)
        result.tally = load.audit()
    except (AssertionError, TimeoutError) as error:
        result.failure = f"{error}"
        tell(f"{error}\n{cluster.log_tail()}")
    finally:
        cluster.stop()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/drill upgrade", description=__doc__)
    parser.add_argument("--from", dest="commit", required=True, help="the older commit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="pravega-upgrade-drill-") as name:
        try:
            old = unpacked(args.commit, Path(name) / "old")
        except ValueError as error:
            parser.error(str(error))
        result = run(Path(name) / "cluster", old, lambda line: console.print(f"  {line}", markup=False))
    for title, value in asdict(result).items():
        console.print(f"{title.replace('_', ' '):<16} {value}", markup=False)
    if args.json:
        args.json.write_text(json.dumps(asdict(result), indent=2))
    console.print("[bold green]as promised" if result.good else "[bold red]not as promised")
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
