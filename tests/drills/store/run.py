"""Carries out runs of the store drill."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.drills.store.audit import Tally
from tests.drills.store.faults import Fault
from tests.drills.store.load import Load
from tests.drills.store.servers import DrillCluster
from tests.support.eventually import eventually_blocking

healing_time_max_s: Final = 120.0
"""Time until stores have looked again at what was damaged: they do once a minute."""
quiet_s: Final = 0.5
"""Of undisturbed load before each fault."""


@dataclass
class RunResult:
    """One run: its counts, and seconds to each writer's first acknowledgement by fault."""

    tally: Tally = field(default_factory=Tally)
    first_acks_s: dict[str, list[float]] = field(default_factory=dict)
    client_errors: int = 0
    failure: str = ""
    """What did not happen as it must; empty if all did."""
    losses: list[str] = field(default_factory=list)
    """The losses for which containers did not start in the end."""

    @property
    def good(self) -> bool:
        return self.tally.good and not self.failure


def run(
    folder: Path,
    faults: Sequence[Fault],
    seed: int,
    *,
    redis_servers: int = 1,
    appendfsync: str = "always",
    waits_for_quarantine: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> RunResult:
    """Start a cluster and its load, inflict the faults one after the other, stop the load, and count."""
    result, chooser = RunResult(), random.Random(seed)
    cluster = DrillCluster(folder, redis_servers=redis_servers, appendfsync=appendfsync)
    try:
        load = Load(cluster.controller_uri)
        load.start()
        load.first_acks(time.monotonic())
        for fault in faults:
            time.sleep(quiet_s)
            acks_s = result.first_acks_s[fault.name] = load.first_acks(
                fault.inflict(cluster, chooser), partial(_refuse_losses, cluster)
            )
            tell(f"{fault.name}: first ack after {max(acks_s):.2f} s")
        time.sleep(quiet_s)
        load.stop()
        if waits_for_quarantine:
            eventually_blocking(
                lambda: not cluster.damaged_segments(), "the end of all quarantines", healing_time_max_s
            )
        result.client_errors = sum(len(worker.errors) for worker in load.workers)
        result.tally = load.audit()
    except (AssertionError, TimeoutError) as error:
        result.failure = f"{error}"
        result.losses = cluster.losses()
        tell(f"{error}\n{cluster.log_tail()}")
    finally:
        cluster.stop()
    return result


def _refuse_losses(cluster: DrillCluster) -> None:
    """Fails if a store says that data was lost: its containers will not come back."""
    losses = cluster.losses()
    if losses:
        raise AssertionError(f"stores report losses: {losses}")
