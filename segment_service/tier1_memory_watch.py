"""Watches the memory of the Redis servers of Tier 1, and holds appends back before they are full.

Each store reads the server's own numbers, so that all stores of a group, and whatever else is on a server, count.
"""

from __future__ import annotations

from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.cluster.redis_audit import memory_of
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess
from segment_service.container.registry import ContainerRegistry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.redis_connection import RedisConnection

period_s: Final = 0.5
"""Pause between two looks at the servers."""
call_time_max_s: Final = 5.0
appends_share_max: Final = 0.85
"""Share of a server's ``maxmemory`` above which appends wait; the rest is the reserve of recovery, checkpoints and
metadata, and of what is accepted between two looks."""
HELD_BY: Final = "tier1"
"""The name under which this part holds the store up."""


class Tier1MemoryWatch(Service):
    """Samples every server on a connection of its own, and closes or opens the back-pressure of the store.

    Looks at the groups that hold plogs of this store or may get some. While one is short of memory the containers write
    checkpoints, at which Tier 1 can be truncated; appends wait once no group is left that new plogs may go to. When
    nothing of this store waits for Tier 2, holding appends back would free nothing: they go on, up to the limit, where
    the logs wait by themselves.
    """

    def __init__(
        self,
        groups: ChoiceByUse,
        back_pressure: StoreBackPressure,
        registry: ContainerRegistry,
        clock: Clock,
        access: RedisAccess = OPEN_ACCESS,
    ) -> None:
        super().__init__("tier1-memory")
        self._access = access
        self._groups = groups
        self._back_pressure = back_pressure
        self._registry = registry
        self._clock = clock
        self._connections: dict[str, RedisConnection] = {}
        self._asked: set[str] = set()
        """Servers with a call in flight."""
        self._answered_s: dict[str, float] = {}
        """When each server answered last, or was looked at first."""

    def silent_s(self, server: str) -> float:
        """Returns the time since a server answered last, in seconds; 0 for one that was never asked."""
        now_s = self._clock.monotonic_s()
        return now_s - self._answered_s.get(server, now_s)

    async def on_start(self) -> None:
        self.spawn(self._run(), "watch")

    async def on_stop(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        self._back_pressure.hold(HELD_BY, False)

    async def _run(self) -> None:
        """Ask all servers at once; one that is silent holds no other up."""
        while True:
            servers = self._groups.needed_servers(self._registry.log_groups())
            self._forget_others(servers)
            for server in servers:
                if server not in self._asked:
                    self._asked.add(server)
                    self._answered_s.setdefault(server, self._clock.monotonic_s())
                    self.spawn(self._sample(server), "sample")
            self._groups.fade()
            await self._clock.sleep(period_s)

    def _forget_others(self, servers: set[str]) -> None:
        """Forget servers in whose places others were registered, and those of drained groups, which are others'
        business: their last samples would be reported for good."""
        for server in self._connections.keys() - servers:
            self._connections.pop(server).abort()
            self._groups.memory.pop(server, None)
            self._answered_s.pop(server, None)

    async def _sample(self, server: str) -> None:
        """Read the memory of one server; without an answer nothing is known, and nothing held back."""
        try:
            connection = self._connections.get(server)
            if connection is None or not connection.is_open:
                connection = self._connections[server] = await RedisConnection.open(
                    server,
                    connect_timeout_s=call_time_max_s,
                    reply_timeout_s=call_time_max_s,
                    access=self._access,
                )
            self._groups.memory[server] = memory_of((await connection.call("INFO", "memory")).decode())
            self._answered_s[server] = self._clock.monotonic_s()
        except PravegaError as error:
            if self._groups.memory.pop(server, None) is not None:
                self.log.warning("the memory of a Redis is not known", server=server, error=str(error))
        finally:
            self._asked.discard(server)
        self._decide()

    def _decide(self) -> None:
        short = {name for name in self._groups.groups if self._groups.is_short(name, appends_share_max)}
        is_short = short.issuperset(self._groups.candidates(tuple(self._groups.groups)))
        is_short = is_short and self._back_pressure.bytes > 0
        if is_short != (HELD_BY in self._back_pressure.held_by):
            self.log.warning(
                "appends wait: Tier 1 is short of memory" if is_short else "Tier 1 has memory for appends",
                memory={server: (memory.used, memory.limit) for server, memory in self._groups.memory.items()},
            )
        self._back_pressure.hold(HELD_BY, is_short)
        if short:
            for container in self._registry:
                container.durable_log.checkpoint_soon()
