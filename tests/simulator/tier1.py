"""The servers of Tier 1 together: one persistence group, of one server or of three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulator.redis_server import SimulatedRedis
from tests.support.fakes.cpo import InMemoryCPO

EMPTY_S: Final = -1.0
"""A time before the first write."""


class Tier1:
    """``losses`` counts the times that more than a minority, or the server of the control plane oracle, came back
    without something."""

    def __init__(self, count: int, make_cpo: Callable[[], InMemoryCPO], now_s: Callable[[], float]) -> None:
        self._make_cpo = make_cpo
        self._now_s = now_s
        self._made = 0
        self.servers = [self.new_server() for _ in range(count)]
        self.losses = 0
        self.oracle: SimulatedRedis | None = None
        """The server that the control plane oracle shares: it has no copy."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(server.address for server in self.servers)

    @property
    def is_up(self) -> bool:
        return all(server.accepts for server in self.servers)

    @property
    def is_full(self) -> bool:
        return any(server.is_full for server in self.servers)

    @property
    def unknown_commands(self) -> list[str]:
        return [command for server in self.servers for command in server.unknown_commands]

    def with_those_behind(self, servers: list[SimulatedRedis]) -> list[SimulatedRedis]:
        """The servers, and all others if these are a majority and one of the others lacks something of theirs.

        What such a server has may be more than Tier 2 and less than was acknowledged: nothing would show the loss.
        """
        others = [server for server in self.servers if server not in servers]
        if 2 * len(servers) > len(self.servers) and not all(
            other.has_all_of(server) for other in others for server in servers
        ):
            return [*servers, *others]
        return servers

    def come_back(self, servers: list[SimulatedRedis], as_of_s: float) -> str:
        """Crash the servers, and start them with what was on their disks at that time; says what was taken."""
        taken = 0
        for server in servers:
            server.crash()
            taken += server.start(as_of_s)
        if taken and (2 * len(servers) > len(self.servers) or self.oracle in servers):
            self.losses += 1
        return f"{len(servers)} of {len(self.servers)} servers come back without {taken} writes"

    def new_server(self) -> SimulatedRedis:
        """An empty server, which belongs to no group yet."""
        self._made += 1
        return SimulatedRedis(f"redis-{self._made - 1}:6379", self._make_cpo, self._now_s)

    def replaced(self, old: SimulatedRedis, new: SimulatedRedis) -> None:
        """``new`` is registered in the place of ``old``; does nothing if that is known."""
        if old in self.servers:
            self.servers[self.servers.index(old)] = new

    def limit(self, bytes_max: Callable[[int], int]) -> None:
        """Set every server's memory limit, from what it uses."""
        for server in self.servers:
            server.maxmemory = bytes_max(server.database.used)

    def heal(self) -> None:
        for server in self.servers:
            server.resume()
            server.start()
