"""Keeps a controller's lease in the control plane oracle and lists the other controllers."""

from __future__ import annotations

from pravega_common.errors import PravegaError
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import CONTROLLER_KIND, Member

renewals_per_lease = 3


class Membership(Service):
    """Keeps the lease of ``member_id`` alive until stopped. A lost oracle stops nothing: others may then take this
    controller for dead and adopt its requests, which every handler allows."""

    def __init__(
        self, cpo: ControlPlaneOracle, member_id: str, member: Member, lease_ms: int, clock: OracleClock
    ) -> None:
        super().__init__("membership")
        self.member_id = member_id
        self._cpo = cpo
        self._member = member
        self._lease_ms = lease_ms
        self._clock = clock
        self._lease_ends_s = clock.monotonic_s()

    @property
    def lease_left_s(self) -> float:
        """Seconds until the lease ends; negative once it has."""
        return self._lease_ends_s - self._clock.monotonic_s()

    async def on_start(self) -> None:
        await self._renew()
        self.spawn(self._keep(), "renew")

    async def on_stop(self) -> None:
        try:
            await self._cpo.release_lease(CONTROLLER_KIND, self.member_id)
        except PravegaError as error:
            self.log.warning("lease was not released, it runs out", error=repr(error))

    async def live_controllers(self) -> dict[str, Member]:
        members = await self._cpo.members(CONTROLLER_KIND)
        return {name: Member.from_payload(payload) for name, payload in members.items()}

    async def live_ids(self) -> set[str]:
        return set(await self._cpo.members(CONTROLLER_KIND))

    async def publish(self, member: Member) -> None:
        """Tell others another address, such as a port that is only known once it is bound."""
        self._member = member
        await self._renew()

    async def _renew(self) -> None:
        payload = self._member.to_payload()
        asked_s = await self._clock.follow(
            self._cpo.renew_lease(CONTROLLER_KIND, self.member_id, payload, self._lease_ms)
        )
        self._lease_ends_s = asked_s + self._lease_ms / 1000

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(self._lease_ms / 1000 / renewals_per_lease)
            try:
                await self._renew()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("lease was not renewed", error=repr(error))
