"""Follows the addresses under which the servers of persistence groups are registered in the CPO."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster

registration_look_s: Final = 5.0
"""Pause between two looks of one log at the registration; one small read each."""


class RegisteredServers:
    """The registration of one cluster, as it was last read."""

    def __init__(self, cluster: PersistenceCluster, cpo: ControlPlaneOracle, clock: Clock) -> None:
        self.cluster = cluster
        self._cpo = cpo
        self._clock = clock
        self._look_at_s = clock.monotonic_s() + registration_look_s

    async def look(self) -> None:
        """Read the registration again if it is time; what is known stays while the CPO does not answer."""
        if self._clock.monotonic_s() < self._look_at_s:
            return
        self._look_at_s = self._clock.monotonic_s() + registration_look_s
        try:
            found = await self._cpo.get_persistence_cluster(self.cluster.name)
        except Unavailable:
            return
        if found is not None and found.version > self.cluster.version:
            self.cluster = found

    def address(self, group: str, index: int) -> str:
        """The registered address of the server at a place of a group."""
        return next(one.servers[index] for one in self.cluster.groups if one.name == group)
