"""Servers of a group of three that lose their data one after the other, each when the one before it is repaired."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tests.simulator.cluster import Cluster
from tests.simulator.processes import ProcessState
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.replacements import ServerReplacements
from tests.simulator.settings import Settings
from tests.simulator.tier1 import EMPTY_S, Tier1

settled_s: Final = 12.0
"""So long the owners must have said that every server takes part: several rounds of a repair."""
repair_time_max_s: Final = 120.0
"""A plan that waits longer for a repair, under faults, goes no further."""
replaced_share: Final = 0.3
"""Share of the losses after which the server is another one for good."""
look_s: Final = 0.5


class RepairPlan:
    """The faults of the family ``repair``: nothing may be lost, unless the plan ends with two servers at once."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        tier1: Tier1,
        replacements: ServerReplacements,
        note: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._rng = random.Random(f"{settings.seed} repairs")
        self._replacing = random.Random(f"{settings.seed} replacements")
        self._replacements = replacements
        self._cluster = cluster
        self._tier1 = tier1
        self._note = note

    async def run(self) -> None:
        """Take the data of one server after the other, at the end sometimes that of two at once."""
        await asyncio.sleep(self._settings.duration_s * self._rng.uniform(0.05, 0.3))
        last: SimulatedRedis | None = None
        for _ in range(self._rng.randint(2, 4)):
            last = self._rng.choice([server for server in self._servers() if server is not last])
            await self._take(last)
            if not await self._in_time(self.repaired()):
                return
            if self._replacing.random() < replaced_share and not await self._in_time(self._replace(last)):
                return
        if self._rng.random() < 0.4:
            await self._take(*self._rng.sample(self._servers(), 2))

    async def repaired(self) -> None:
        """Return once every container's owner has said for a while that all servers take part and lack nothing."""
        well_s = 0.0
        while well_s < settled_s:
            await asyncio.sleep(look_s)
            well_s = well_s + look_s if self._is_replicated() else 0.0
        self._note("every server takes part")

    def _servers(self) -> list[SimulatedRedis]:
        """Those that may lose their data: not the one that the control plane oracle lives on, as it has no copy."""
        return [server for server in self._tier1.servers if server is not self._tier1.oracle]

    async def _replace(self, server: SimulatedRedis) -> None:
        await self._replacements.replace(server)
        await self.repaired()

    async def _in_time(self, work: Awaitable[None]) -> bool:
        try:
            async with asyncio.timeout(repair_time_max_s):
                await work
        except TimeoutError:
            self._note("the repair takes too long for another loss")
            return False
        return True

    async def _take(self, *servers: SimulatedRedis) -> None:
        """The servers are away for a moment, and come back empty or older."""
        is_empty = len(servers) > 1 or self._rng.random() < 0.7
        writes = self._rng.choice((1, 2, 10, 100, 1_000))
        as_of_s = EMPTY_S if is_empty else servers[0].before_last(writes)
        if self._rng.random() < 0.3:
            self._cluster.kill(self._cluster.current.process, "with servers that lose their data")
        for server in servers:
            server.crash()
        away_s = self._rng.choice((0.0, 1.0, self._rng.uniform(0, 15)))
        await asyncio.sleep(away_s)
        names = ", ".join(server.address for server in servers)
        state = "empty" if is_empty else "older"
        self._note(f"LOSS: {self._tier1.come_back(list(servers), as_of_s)}: {names}: {state}, after {away_s:.4f} s")
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()

    def _is_replicated(self) -> bool:
        """What the status pages of the stores say."""
        store = self._cluster.current
        if store.process.state is not ProcessState.RUNNING or not self._tier1.is_up:
            return False
        for container_id in store.containers:
            container = store.registry.find(container_id)
            if container is None or not container.is_running:
                return False
            replication = container.durable_log.replication
            if replication.servers_out or replication.under_replicated_plogs:
                return False
        return True
