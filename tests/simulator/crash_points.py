"""Kills stores at the failpoints of the product."""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import random
from collections.abc import Callable, Sequence

import segment_service
from pravega_common.runtime import failpoints
from tests.simulator.processes import Process, ProcessKilled, current_process
from tests.simulator.settings import FAMILIES

PACKAGES = (
    "attribute_index",
    "container",
    "durable_log",
    "event_index",
    "metadata_table",
    "plog",
    "sorted_runs",
    "storage",
    "tables",
    "writer",
)
"""Packages of the segment store, after which their failpoints are named."""


@functools.cache
def store_failpoints() -> Sequence[str]:
    """The names of the store's failpoints, the same whatever else this process imported: a seed draws from them."""
    for module in pkgutil.walk_packages(segment_service.__path__, "segment_service."):
        if module.name.split(".")[1] in PACKAGES:
            importlib.import_module(module.name)
    return tuple(sorted(name for name in failpoints.KNOWN if name.partition(".")[0] in PACKAGES))


def favourite_of(seed: int) -> str:
    """The failpoint that a seed asks for again and again, so that many seeds come to each of them.

    Families follow one another too (``family_of``): what both cycles make together is shifted each time by one, or
    families would never ask for the failpoints that only they reach.
    """
    names, turn = store_failpoints(), seed // 2
    return names[(turn + turn // math.lcm(len(names), len(FAMILIES) - 1)) % len(names)]


class CrashPoints:
    """Every failpoint of a store is armed; one that was asked for kills the process that comes there."""

    def __init__(self, seed: int, kill: Callable[[Process, str], None]) -> None:
        self.reached: dict[str, int] = {}
        self.crashed: dict[str, int] = {}
        self._rng = random.Random(f"{seed} failpoints")
        self._names = store_failpoints()
        self._favourite = favourite_of(seed)
        self._kill = kill
        self._wanted: dict[str, int] = {}

    def arm(self) -> None:
        failpoints.disarm_all()
        for name in self._names:
            failpoints.arm(name, lambda name=name: self._hit(name))  # type: ignore[misc]

    def disarm(self) -> None:
        self._wanted.clear()
        failpoints.disarm_all()

    def ask(self) -> str:
        """Kill the next process that comes to one of a few failpoints, perhaps not at its first hit."""
        names = self._rng.sample(self._names, 2)
        names.append(self._favourite)
        self._wanted = {name: self._rng.choice((1, 1, 2, 5)) for name in names}
        return ", ".join(names)

    def ask_for(self, name: str) -> None:
        """Kill the next process that comes to this failpoint."""
        self._wanted = {name: 1}

    def _hit(self, name: str) -> None:
        process = current_process()
        if process is None or not process.is_alive:
            return
        self.reached[name] = self.reached.get(name, 0) + 1
        left = self._wanted.get(name)
        if left is None:
            return
        if left > 1:
            self._wanted[name] = left - 1
            return
        self._wanted.clear()
        self.crashed[name] = self.crashed.get(name, 0) + 1
        self._kill(process, f"at {name}")
        raise ProcessKilled(name)
