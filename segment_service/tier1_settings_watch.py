"""Watches the settings of the Redis servers of Tier 1, and ends the store when one could lose acknowledged data.

Connections audit a server when they are opened. Whoever reaches it can change ``appendfsync`` afterwards, and it would
go on acknowledging what a crash of the machine takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.redis_connection import RedisConnection
from segment_service.plog.server_connections import refuse_unsafe_server

period_s: Final = 5.0
"""Pause between two looks at the servers: nine short requests each."""
call_time_max_s: Final = 5.0
HELD_BY: Final = "tier1-settings"
"""The name under which this part holds the store up."""


class Tier1SettingsWatch(Service):
    """Audits the servers of the groups that get new plogs, and of those that containers have plogs in
    (``used_groups``), again and again, on a connection of its own to each; fails with ``ConfigurationError``.

    A store that fails is started again by who runs it, and refuses the server until its settings are right. A server
    that does not answer acknowledges nothing: it is left to the logs. A drained group stays registered, and its servers
    may serve others. ``is_off`` says that unsafe servers are allowed.
    """

    def __init__(
        self,
        groups: ChoiceByUse,
        back_pressure: StoreBackPressure,
        used_groups: Callable[[], Iterable[str]],
        clock: Clock,
        access: RedisAccess = OPEN_ACCESS,
        *,
        is_off: bool,
    ) -> None:
        super().__init__("tier1-settings")
        self._groups = groups
        self._back_pressure = back_pressure
        self._used_groups = used_groups
        self._clock = clock
        self._access = access
        self._is_off = is_off
        self._connections: dict[str, RedisConnection] = {}
        self._asked: set[str] = set()
        """Servers with a call in flight."""

    async def on_start(self) -> None:
        if not self._is_off:
            self.spawn(self._run(), "watch")

    async def on_stop(self) -> None:
        for connection in self._connections.values():
            connection.abort()

    async def _run(self) -> None:
        """Ask all servers at once; one that is silent holds no other up."""
        while True:
            servers = self._groups.needed_servers(self._used_groups())
            for server in self._connections.keys() - servers:
                self._connections.pop(server).abort()
            for server in servers:
                if server not in self._asked:
                    self._asked.add(server)
                    self.spawn(self._audit(server), "audit")
            await self._clock.sleep(period_s)

    async def _audit(self, server: str) -> None:
        try:
            connection = await self._connection(server)
            if connection is not None:
                await refuse_unsafe_server(connection, self._access, allow_unsafe=False)
        except ConfigurationError:
            # The end takes a while: what is accepted goes to Tier 2 first. Nothing more is acknowledged meanwhile.
            self._back_pressure.hold(HELD_BY, True)
            raise
        except PravegaError as error:
            self.log.debug("the settings of a Redis are not known", server=server, error=str(error))
        finally:
            self._asked.discard(server)

    async def _connection(self, server: str) -> RedisConnection | None:
        """``None`` for a server that cannot be reached or lets this store not in: the logs say so."""
        connection = self._connections.get(server)
        if connection is not None and connection.is_open:
            return connection
        try:
            connection = self._connections[server] = await RedisConnection.open(
                server, connect_timeout_s=call_time_max_s, reply_timeout_s=call_time_max_s, access=self._access
            )
        except PravegaError:
            return None
        return connection
