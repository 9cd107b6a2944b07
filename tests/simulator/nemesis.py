"""The faults of a run, one after the other, each for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.simulator.cluster import Cluster
from tests.simulator.crash_points import CrashPoints
from tests.simulator.network import Network
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.settings import Settings
from tests.simulator.tier1 import EMPTY_S, Tier1
from tests.simulator.tier2 import Tier2
from tests.support.fakes.faulty_chunk_storage import FaultRates

Fault = Callable[[], Awaitable[None]]


class Nemesis:
    """``run`` goes on until it is cancelled; ``heal`` ends every fault."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        network: Network,
        tier1: Tier1,
        tier2: Tier2,
        crash_points: CrashPoints,
        note: Callable[[str], None],
    ) -> None:
        self._rng = random.Random(f"{settings.seed} nemesis")
        self._settings = settings
        self._cluster = cluster
        self._network = network
        self._tier1 = tier1
        self._tier2 = tier2
        self._crash_points = crash_points
        self._note = note
        self._tasks: list[asyncio.Task[Any]] = []
        self._faults: tuple[tuple[int, Fault], ...] = (
            (8, self._crash_at_failpoint),
            (4, self._crash),
            (3, self._zombie),
            (1, self._store_pauses),
            (1, self._replace),
            (1, self._stop_cleanly),
            (2, self._redis_crashes),
            (1, self._redis_pauses),
            (3, self._connections_break),
            (2, self._connection_falls_silent),
            (1, self._append_is_answered_twice),
            (2, self._network_is_slow),
            (1, self._network_holds),
            (1, self._cpo_loses_answers),
            (3, self._tier2_fails_at_random),
            (2, self._tier2_is_away),
            (1, self._late_puts_land),
            (1, self._cache_is_trimmed),
            (1, self._redis_is_full_for_a_moment),
        )
        self._victim: SimulatedRedis | None = None
        if len(tier1.servers) > 1:
            self._faults += (
                (3, self._server_is_cut_off),
                (2, self._server_loses_data),
                (2, self._one_server_is_ahead),
                (2, self._loss_is_hidden),
            )
        if settings.family == "repair":  # its plan alone decides who loses data, which is repaired in between
            own = (self._server_loses_data, self._loss_is_hidden)
            self._faults = tuple((weight, fault) for weight, fault in self._faults if fault not in own)
        if settings.family == "full":  # its plan alone decides when Tier 2 is away, and how much fits Tier 1
            mine = (self._tier2_is_away, self._redis_is_full_for_a_moment)
            self._faults = tuple((weight, fault) for weight, fault in self._faults if fault not in mine)

    async def run(self) -> None:
        """Faults at random moments; those of ``full`` and ``damage`` beside the run's own."""
        weights = [weight for weight, _ in self._faults]
        while True:
            await self._pause(0.2, 2 * self._settings.fault_pause_s)
            (fault,) = self._rng.choices([fault for _, fault in self._faults], weights)
            self._note(f"fault: {fault.__name__.strip('_').replace('_', ' ')}")
            self._tasks.append(asyncio.ensure_future(fault()))

    async def heal(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._crash_points.disarm()
        self._network.heal()
        self._tier1.heal()
        if self._settings.family != "full":
            self._tier1.limit(lambda _: 0)
        self._tier2.faulty.rates = FaultRates()
        self._tier2.faulty.resume()
        await self._tier2.faulty.land_late_puts()
        for store in self._cluster.stores:
            self._cluster.resume(store.process)
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()
        self._note("everything is healed")

    async def _pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(least_s, most_s))

    # --- stores

    async def _crash_at_failpoint(self) -> None:
        self._note(f"crash at one of {self._crash_points.ask()}")
        store = self._cluster.current
        for _ in range(100):
            await asyncio.sleep(0.1)
            if not store.process.is_alive:
                break
        await self._pause(0, 1)
        self._revive()

    async def _crash(self) -> None:
        self._cluster.kill(self._cluster.current.process, "at a random moment")
        await self._pause(0, 2)
        self._revive()

    def _revive(self) -> None:
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()

    async def _zombie(self) -> None:
        """A store is paused, replaced, and wakes up late, with all that it had on its way."""
        process = self._cluster.current.process
        process.pause()
        await self._pause(0, 2)
        self._cluster.start_store()
        await self._pause(0.1, 20)
        self._cluster.resume(process)
        await self._pause(1, 10)
        self._cluster.kill(process, "as a zombie")

    async def _store_pauses(self) -> None:
        process = self._cluster.current.process
        process.pause()
        await self._pause(0.5, 12)
        self._cluster.resume(process)

    async def _replace(self) -> None:
        """Another store takes over from one that knows nothing of it."""
        process = self._cluster.current.process
        self._cluster.start_store()
        await self._pause(1, 20)
        self._cluster.kill(process, "after it was replaced")

    async def _stop_cleanly(self) -> None:
        store = self._cluster.current
        for container_id in store.containers:
            store.process.spawn(store.stop_container(container_id), "stop")
        await self._pause(0, 1)
        self._cluster.start_store()
        await self._pause(1, 15)
        self._cluster.kill(store.process, "after it was stopped")

    async def _cache_is_trimmed(self) -> None:
        self._cluster.current.process.call_soon(self._cluster.current.trim_cache)

    # --- Redis and the network

    async def _redis_crashes(self) -> None:
        server = self._rng.choice(self._tier1.servers)
        if not server.accepts:
            return
        server.crash()
        await self._pause(0, 3)
        server.start()

    async def _redis_pauses(self) -> None:
        server = self._rng.choice(self._tier1.servers)
        server.pause()
        await self._pause(0.1, 12)
        server.resume()

    async def _server_is_cut_off(self) -> None:
        """One server of several is out of reach, or one of two that were."""
        address = self._rng.choice(self._tier1.servers).address
        self._network.cut_off(address)
        await self._pause(0.5, 20)
        self._network.unreachable.discard(address)

    async def _server_loses_data(self) -> None:
        """One server of several comes back empty or older, always the same one: nobody repairs it in between."""
        now_s = asyncio.get_running_loop().time()
        if self._settings.family == "loss":
            return
        # The control plane oracle may live on the first one; it has no copy.
        self._victim = self._victim or self._rng.choice(self._tier1.servers[1:])
        as_of_s = self._rng.choice((EMPTY_S, now_s - 0.05, now_s - self._rng.uniform(0, 20)))
        self._note(f"a minority's loss: {self._tier1.come_back([self._victim], as_of_s)}: {self._victim.address}")

    async def _one_server_is_ahead(self) -> None:
        """Appends reach one server only; it goes away together with the store."""
        ahead, *others = self._rng.sample(self._tier1.servers, len(self._tier1.servers))
        for server in others:
            self._network.cut_off(server.address)
        await self._pause(0.02, 0.6)
        self._cluster.kill(self._cluster.current.process, f"with {ahead.address}, the only server in its reach")
        ahead.crash()
        for server in others:
            self._network.unreachable.discard(server.address)
        await self._pause(0, 0.5)
        self._revive()
        await self._pause(0.5, 8)
        ahead.start()

    async def _loss_is_hidden(self) -> None:
        """Appends reach two servers; of these, one comes back older, and the other one is out of reach at first."""
        if self._settings.family == "loss":
            return
        self._victim = self._victim or self._rng.choice(self._tier1.servers[1:])
        behind, holder = self._rng.sample([server for server in self._tier1.servers if server is not self._victim], 2)
        self._network.cut_off(behind.address)
        await self._pause(0.1, 3)
        self._cluster.kill(self._cluster.current.process, "with two servers in its reach")
        self._network.unreachable.discard(behind.address)
        self._network.cut_off(holder.address)
        as_of_s = asyncio.get_running_loop().time() - self._rng.uniform(0.05, 2)
        self._note(f"a minority's loss: {self._tier1.come_back([self._victim], as_of_s)}: {self._victim.address}")
        self._revive()
        await self._pause(0.5, 8)
        self._network.unreachable.discard(holder.address)

    async def _redis_is_full_for_a_moment(self) -> None:
        server = self._rng.choice(self._tier1.servers)
        server.maxmemory = 1
        await self._pause(0.05, 4)
        server.maxmemory = 0

    async def _connections_break(self) -> None:
        for connection in list(self._network.connections):
            if self._rng.random() < 0.5:
                connection.reset()

    async def _connection_falls_silent(self) -> None:
        connections = list(self._network.connections)
        if connections:
            self._rng.choice(connections).silence()

    async def _append_is_answered_twice(self) -> None:
        self._rng.choice(self._tier1.servers).doubles_next_append = True

    async def _network_is_slow(self) -> None:
        self._network.delay_max_s = self._rng.choice((0.05, 0.3, 1.5))
        await self._pause(0.5, 5)
        self._network.delay_max_s = 0.002

    async def _network_holds(self) -> None:
        self._network.hold(self._cluster.current.process, self._rng.uniform(0.5, 15))

    async def _cpo_loses_answers(self) -> None:
        self._network.lost_answers = 0.5
        await self._pause(1, 6)
        self._network.lost_answers = 0.0

    # --- Tier 2

    async def _tier2_fails_at_random(self) -> None:
        rate = self._rng.choice((0.02, 0.1, 0.3))
        self._tier2.faulty.rates = FaultRates(rate, rate, rate, rate, self._rng.choice((0.0, 0.1, 2.0, 40.0)))
        await self._pause(1, 12)
        self._tier2.faulty.rates = FaultRates()
        await self._late_puts_land()

    async def _tier2_is_away(self) -> None:
        self._tier2.faulty.stop()
        await self._pause(0.5, 20)
        self._tier2.faulty.resume()

    async def _late_puts_land(self) -> None:
        await self._tier2.faulty.land_late_puts()
