"""Learns the limits of bytes a second from the control plane oracle."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.cluster.byte_limits import BYTE_LIMITS_KEY, AllByteLimits
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND
from segment_service.quotas.scope_buckets import ByteQuotas

period_s: Final = 5.0
"""Pause between two looks: one short request, and another one while some scope is limited."""


class LimitsWatch(Service):
    """Takes the limits as they are, divided by the number of live stores. While the oracle is silent, or its record
    cannot be read, those that were read last are held."""

    def __init__(self, quotas: ByteQuotas, cpo: ControlPlaneOracle, clock: Clock) -> None:
        super().__init__("byte-limits")
        self._quotas = quotas
        self._cpo = cpo
        self._clock = clock
        self._problem = ""

    async def on_start(self) -> None:
        self.spawn(self._run(), "watch")

    async def _run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(period_s)

    async def look(self) -> None:
        """Read the limits once; an error is logged when it is a new one."""
        try:
            scopes = AllByteLimits.decode(await self._cpo.get_constant(BYTE_LIMITS_KEY)).scopes
            stores = len(await self._cpo.members(SEGMENT_STORE_KIND)) if scopes else 1
        except PravegaError as error:
            if str(error) != self._problem:
                self.log.warning("the scopes' limits of bytes cannot be read", error=str(error))
            self._problem = str(error)
            return
        self._problem = ""
        self._quotas.share(scopes, max(1, stores))
