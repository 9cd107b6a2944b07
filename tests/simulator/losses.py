"""Faults that take data away for good, or fill Tier 1: one plan for each family but ``crash``."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final

from pravega_common.errors import PravegaError
from tests.simulator.cluster import Cluster
from tests.simulator.history import History, Progress
from tests.simulator.settings import Settings
from tests.simulator.tier1 import EMPTY_S, Tier1
from tests.simulator.tier2 import Tier2

answer_time_max_s: Final = 1.0
"""So long the plan waits for what a store says about a segment."""


class LossPlan:
    """The faults of a family beside those that every family has. ``run`` returns when it is done."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        tier1: Tier1,
        tier2: Tier2,
        history: History,
        note: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._started_s = asyncio.get_running_loop().time()
        self._rng = random.Random(f"{settings.seed} plan")
        self._cluster = cluster
        self._tier1 = tier1
        self._tier2 = tier2
        self._history = history
        self._note = note

    async def run(self) -> None:
        plans = {"loss": self._lose, "full": self._fill, "damage": self._damage}
        plan = plans.get(self._settings.family)
        if plan is not None:
            await asyncio.sleep(self._settings.duration_s * self._rng.uniform(0.3, 0.8))
            await plan()

    # --- loss

    async def _lose(self) -> None:
        """Tier 1 comes back older or empty, with the store or without it, at a point that Tier 2 is ahead of."""
        as_of_s = None
        for _ in range(100):
            as_of_s = await self._time_to_go_back_to()
            if as_of_s is not None:
                break
            await asyncio.sleep(0.2)
        if as_of_s is None:
            self._note("nothing that is in Tier 2 can be taken from Tier 1: no loss")
            return
        taken = self._rng.sample(self._tier1.servers, self._rng.randint(1, len(self._tier1.servers)))
        servers = self._tier1.with_those_behind(taken)
        # Only a store that starts registers its groups, without which nothing is known about a container.
        is_oracle_emptied = as_of_s == EMPTY_S and self._tier1.oracle in servers
        if self._rng.random() < 0.7 or is_oracle_emptied:
            self._cluster.kill(self._cluster.current.process, "with Tier 1")
        state = "empty" if as_of_s == EMPTY_S else f"as of {as_of_s - self._started_s:.4f} s"
        self._note(f"LOSS: {self._tier1.come_back(servers, as_of_s)}: {state}")
        await asyncio.sleep(self._rng.uniform(0, 1))
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()

    async def _time_to_go_back_to(self) -> float | None:
        """The time of the last write that stays; ``None`` if a loss would go unnoticed now.

        With one server a loss is seen only by what Tier 2 has beyond it.
        """
        stored = await self._stored_points()
        if len(stored) < self._settings.containers or not self._tier1.is_up:
            return None
        highest = min(stored.values())
        way = self._rng.random()
        if way < 0.2 or highest <= self._started_s:  # or Tier 2 has no append of some container: all of Tier 1 goes
            return EMPTY_S
        if way < 0.6:
            return highest
        return self._rng.uniform((self._started_s + highest) / 2, highest)

    async def _stored_points(self) -> dict[int, float]:
        """For each container, the last time when an append was sent first that Tier 2 has now."""
        found: dict[int, float] = {}
        # Asking takes a while, in which segments are made.
        for segment in list(self._history.segments.values()):
            if segment.created is not Progress.DONE or segment.may_be_gone:
                continue
            container_id = self._cluster.container_of(segment.name)
            container = self._cluster.owner_of(segment.name).registry.find(container_id)
            if container is None or container.epoch < segment.created_epoch:
                continue
            # A store that dies meanwhile never answers.
            with contextlib.suppress(PravegaError, TimeoutError):
                async with asyncio.timeout(answer_time_max_s):
                    stored_length = (await container.get_info(segment.name)).storage_length
                for writer in segment.writers.values():
                    stored = (event for event in writer.events if event.is_acked and event.end <= stored_length)
                    sent = [event.first_sent_at_s for event in stored if event.first_sent_at_s is not None]
                    found[container_id] = max([found.get(container_id, 0.0), *sent])
        return found

    # --- full

    async def _fill(self) -> None:
        """Tier 2 goes away, Tier 1 fills up to its limit, which stays; later Tier 2 is back."""
        self._tier2.faulty.stop()
        room = self._rng.randint(5_000_000, 7_000_000)
        self._tier1.limit(lambda used: used + room)
        for _ in range(600):
            if self._tier1.is_full:
                break
            await asyncio.sleep(0.1)
        self._note("Tier 1 is full" if self._tier1.is_full else "Tier 1 is not full, with Tier 2 away")
        await asyncio.sleep(self._rng.choice((1.0, 20.0, 70.0)))
        self._tier2.faulty.resume()
        self._note("Tier 2 is back")

    # --- damage

    async def _damage(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            kind = self._rng.choice(("d", "d", "m"))
            name = self._tier2.damage(lambda name, kind=kind: name.startswith(f"c00000/{kind}/"))  # type: ignore[misc]
            if name is not None:
                self._cluster.damaged.add(int(name.split("/")[2], 16))
                self._note(f"DAMAGE: {name}")
                self._cluster.current.process.call_soon(self._cluster.current.trim_cache)
            await asyncio.sleep(self._rng.uniform(0.1, 5))
