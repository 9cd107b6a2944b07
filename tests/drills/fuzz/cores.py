"""Gives those who attack cores of their own, as they have on a machine of their own.

A low priority is not enough. Each service has a session of its own, and Linux shares the cores among sessions before it
looks at priorities; and whatever wakes up may wait until the turn of the one that runs is over, some 3 ms, three times
in an append.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class CoreShares:
    """The cores of this process in two parts. Both are all of them, or none are known, where they cannot be parted."""

    services: frozenset[int]
    """For the cluster and the good client."""
    peers: frozenset[int]
    """For those who attack."""

    @property
    def are_apart(self) -> bool:
        return bool(self.services) and not self.services & self.peers

    @classmethod
    def of(cls, cores: Collection[int]) -> CoreShares:
        ordered = sorted(cores)
        half = (len(ordered) + 1) // 2
        if half == len(ordered):
            return cls(frozenset(ordered), frozenset(ordered))
        return cls(frozenset(ordered[:half]), frozenset(ordered[half:]))

    @classmethod
    def of_this_process(cls) -> CoreShares:
        return cls.of(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run this thread there, and the processes and threads that it starts meanwhile."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
