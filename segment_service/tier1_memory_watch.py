"""Watches the memory of the Redis servers of Tier 1, and holds appends back before they are full.

Each store reads the server's own numbers, so that all stores of a group, and whatever else is on a server, count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.cluster.redis_audit import RedisMemory, memory_of
from segment_service.container.registry import ContainerRegistry
from segment_service.metadata.back_pressure import StoreBackPressure
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

    While the servers are short of memory the containers write checkpoints, at which Tier 1 can be truncated. When
    nothing of this store waits for Tier 2, holding appends back would free nothing: they go on, up to the limit, where
    the logs wait by themselves.
    """

    def __init__(
        self, servers: Sequence[str], back_pressure: StoreBackPressure, registry: ContainerRegistry, clock: Clock
    ) -> None:
        super().__init__("tier1-memory")
        self.memory: dict[str, RedisMemory] = {}
        """The last sample of each server, by its address."""
        self._servers = tuple(servers)
        self._back_pressure = back_pressure
        self._registry = registry
        self._clock = clock
        self._connections: dict[str, RedisConnection] = {}

    async def on_start(self) -> None:
        self.spawn(self._run(), "watch")

    async def on_stop(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        self._back_pressure.hold(HELD_BY, False)

    async def _run(self) -> None:
        while True:
            for server in self._servers:
                await self._sample(server)
            self._decide()
            await self._clock.sleep(period_s)

    async def _sample(self, server: str) -> None:
        """Read the memory of one server; without an answer nothing is known, and nothing held back."""
        try:
            connection = self._connections.get(server)
            if connection is None or not connection.is_open:
                connection = self._connections[server] = await RedisConnection.open(
                    server, connect_timeout_s=call_time_max_s, reply_timeout_s=call_time_max_s
                )
            self.memory[server] = memory_of((await connection.call("INFO", "memory")).decode())
        except PravegaError as error:
            if self.memory.pop(server, None) is not None:
                self.log.warning("the memory of a Redis is not known", server=server, error=str(error))

    def _decide(self) -> None:
        short = [server for server, memory in self.memory.items() if memory.used_share > appends_share_max]
        is_short = bool(short) and self._back_pressure.bytes > 0
        if is_short != (HELD_BY in self._back_pressure.held_by):
            self.log.warning(
                "appends wait: Tier 1 is short of memory" if is_short else "Tier 1 has memory for appends",
                memory={server: (memory.used, memory.limit) for server, memory in self.memory.items()},
            )
        self._back_pressure.hold(HELD_BY, is_short)
        if short:
            for container in self._registry:
                container.durable_log.checkpoint_soon()
