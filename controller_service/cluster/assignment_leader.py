"""Assigns containers to stores on the one elected controller."""

from __future__ import annotations

import operator
from typing import Final

from controller_service.cluster.balancer import balance
from controller_service.cluster.membership import renewals_per_lease
from pravega_common.errors import PravegaError, VersionConflict
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import Assignment, ControlPlaneOracle
from pravega_common.services.cluster.registry import ASSIGNMENT_LEADER_ROLE, SEGMENT_STORE_KIND, Member

rounds_per_lease: Final = 5
rebalance_delay_s: Final = 3.0
"""How long a changed set of stores must stand before containers that have a living owner move."""
retry_delay_min_s: Final = 1.0
retry_delay_max_s: Final = 60.0
"""Back-off, per container, between assignments of one that stops by itself."""


class AssignmentLeader(Service):
    """Every controller runs one; only the elected one acts. The assignment is replaced by compare-and-set, so one that
    does not know yet that it was displaced changes nothing."""

    def __init__(
        self, cpo: ControlPlaneOracle, member_id: str, container_count: int, lease_ms: int, clock: Clock
    ) -> None:
        super().__init__("assignment-leader")
        self.is_leader = False
        self._cpo = cpo
        self._member_id = member_id
        self._container_count = container_count
        self._lease_ms = lease_ms
        self._clock = clock
        self._stores_seen: frozenset[str] = frozenset()
        self._stores_since_s = 0.0
        self._touched: tuple[float, float] | None = None
        """When the oracle answered last: by this controller's clock, and by the oracle's, at which leases end."""
        self._spared_until_s = float("-inf")
        """Until then a store without a lease keeps its containers."""
        self._retry_delays_s: dict[int, float] = {}
        self._retry_not_before_s: dict[int, float] = {}

    async def on_start(self) -> None:
        self.spawn(self._run(), "lead")

    async def on_stop(self) -> None:
        try:
            await self._cpo.resign(ASSIGNMENT_LEADER_ROLE, self._member_id)
        except PravegaError as error:
            self.log.warning("did not resign, the election runs out", error=repr(error))

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("round failed", error=repr(error))
            await self._clock.sleep(self._lease_ms / 1000 / rounds_per_lease)

    async def round(self) -> None:
        """Try to lead, and assign what must be assigned."""
        self.is_leader = await self._cpo.try_lead(ASSIGNMENT_LEADER_ROLE, self._member_id, self._lease_ms)
        self._note_touch(await self._cpo.time_of_day_ms())
        if not self.is_leader:
            return
        payloads = await self._cpo.members(SEGMENT_STORE_KIND)
        stores = {name: Member.from_payload(payload) for name, payload in payloads.items()}
        assignment = await self._cpo.get_assignment()
        wanted = self._wanted(stores, assignment)
        if wanted == dict(assignment.owners) and not self._must_restart(stores, assignment):
            return
        try:
            version = await self._cpo.put_assignment(assignment.version, wanted)
        except VersionConflict as error:
            self.log.info("another leader was faster", error=str(error))
            return
        self.log.info("containers assigned", version=version, owners=wanted)

    def _note_touch(self, oracle_ms: int) -> None:
        """An oracle that was away took no renewals either, and a lease may have been close to the next of them: a store
        that runs on may come to its own only after this, and has the time of a lease for it. So it is behind a sleep of
        the machine, and where the oracle's clock was set, which only its time of day shows; and at this controller's
        start, before which any of these may have been."""
        now, lease_s = (self._clock.monotonic_s(), oracle_ms / 1000), self._lease_ms / 1000
        if self._touched is None or max(map(operator.sub, now, self._touched)) > lease_s * (1 - 1 / renewals_per_lease):
            self._spared_until_s = now[0] + lease_s
        self._touched = now

    def _wanted(self, stores: dict[str, Member], assignment: Assignment) -> dict[int, str]:
        """Containers without a living owner are assigned at once, but for those of spared stores; others move only once
        the stores are settled.

        Without any store nothing changes: nobody could take a container over, and a single store that merely lost its
        lease, as on a machine that slept, would stop all of its own.
        """
        now_s = self._clock.monotonic_s()
        names = frozenset(stores)
        if names != self._stores_seen:
            self._stores_seen, self._stores_since_s = names, now_s
        if not names:
            return dict(assignment.owners)
        balanced = balance(self._container_count, names, assignment.owners)
        is_settled = now_s - self._stores_since_s >= rebalance_delay_s
        is_spared = now_s < self._spared_until_s

        def stays(owner: str) -> bool:
            return not is_settled if owner in names else is_spared

        kept = {container: owner for container, owner in assignment.owners.items() if stays(owner)}
        return {container: kept.get(container, owner) for container, owner in balanced.items()}

    def _must_restart(self, stores: dict[str, Member], assignment: Assignment) -> bool:
        """Whether a container failed under the current assignment and its back-off is over: a new version of the
        assignment makes its owner start it again, and with it all that failed, so the back-off of each goes on."""
        now_s = self._clock.monotonic_s()
        failed = {
            container: store
            for store, member in stores.items()
            for container, version in member.failed_containers
            if assignment.owners.get(container) == store and version >= assignment.version
        }
        due = [
            container
            for container in failed
            if now_s >= self._retry_not_before_s.setdefault(container, now_s + retry_delay_min_s)
        ]
        if due:
            self._back_off(failed, stores, now_s)
        self._forget_retries({container for member in stores.values() for container, _ in member.failed_containers})
        return bool(due)

    def _back_off(self, failed: dict[int, str], stores: dict[str, Member], now_s: float) -> None:
        for container, store in failed.items():
            delay_s = min(retry_delay_max_s, 2 * self._retry_delays_s.get(container, retry_delay_min_s))
            self._retry_delays_s[container] = delay_s
            self._retry_not_before_s[container] = now_s + delay_s
            reason = dict(stores[store].failure_reasons).get(container, "")
            self.log.error("a container failed", container=container, store=store, reason=reason, next_try_s=delay_s)

    def _forget_retries(self, failed: set[int]) -> None:
        """Begins the back-off of containers again that have run for long."""
        now_s = self._clock.monotonic_s()
        for container in self._retry_delays_s.keys() - failed:
            if now_s - self._retry_not_before_s[container] > retry_delay_max_s:
                del self._retry_delays_s[container], self._retry_not_before_s[container]
