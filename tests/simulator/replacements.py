"""Replaces a server of a group of three for good, as ``cluster replace-server`` does, while stores run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, cast

from pravega_common.errors import ConfigurationError, PravegaError, Unavailable, VersionConflict
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.maintenance.server_replacement import ServerReplacement
from segment_service.plog.cluster_registration import ServerFacts
from segment_service.plog.plog import identity_key
from segment_service.plog.plog_client import PlogSettings
from tests.simulator.network import Network
from tests.simulator.oracle import RemoteCPO
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.store import cluster_name, group_name
from tests.simulator.tier1 import Tier1
from tests.simulator.virtual_loop import VirtualClock

repeat_s: Final = 1.0
"""Pause of the operator before the command is given again."""


class ServerReplacements:
    """The operator who replaces servers; the command is given again until it is complete."""

    def __init__(
        self,
        network: Network,
        tier1: Tier1,
        cpo: RemoteCPO,
        clock: VirtualClock,
        rng: random.Random,
        note: Callable[[str], None],
        containers: int,
    ) -> None:
        self._network = network
        self._tier1 = tier1
        self._cpo = cast(ControlPlaneOracle, cpo)
        self._clock = clock
        self._rng = rng
        self._note = note
        self._containers = containers

    async def replace(self, old: SimulatedRedis) -> SimulatedRedis:
        """Put an empty server into the place of ``old``, which is dead, or goes on at its address, unused."""
        new = self._tier1.new_server()
        self._network.servers[new.address] = new
        if self._rng.random() < 0.7:
            old.crash()
        state = "goes on" if old.accepts else "is dead"
        self._note(f"{new.address} is to take the place of {old.address}, which {state}")
        command = ServerReplacement(
            self._cpo, self._ask, self._clock, cluster_name, group_name, old.address, new.address
        )
        while True:
            try:
                await self._cpo.set_once(CONTAINER_COUNT_KEY, str(self._containers))  # as controllers do at first
                await command.register()
                self._tier1.replaced(old, new)
                async for progress in command.follow():
                    if progress.is_complete:
                        self._note(f"{new.address} took the place of {old.address}")
                        return new
            except (PravegaError, VersionConflict, ConfigurationError) as error:
                self._note(f"the replacement is repeated: {error}")
                await asyncio.sleep(repeat_s)

    async def _ask(self, address: str) -> ServerFacts:
        server = cast(SimulatedRedis, self._network.servers[address])
        if not server.accepts or address in self._network.unreachable:
            raise Unavailable(f"{address} does not answer")
        identity = server.database.get(identity_key(PlogSettings().prefix).encode())
        return ServerFacts(server.run_id, None if identity is None else cast(bytes, identity).decode())
