"""Knows the owner of every container, as of the last assignment, for ``getURI`` and the controller's own calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller_service.cluster.placement import Placement
from controller_service.errors import NoHost
from pravega_common.errors import PravegaError, Unavailable
from pravega_common.hashing import container_of_segment
from pravega_common.runtime.client_tls import SYSTEM_TRUST, ClientTls
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import Assignment, ControlPlaneOracle
from pravega_common.services.cluster.registry import CONTROLLER_KIND, SEGMENT_STORE_KIND, Member
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_streams.connection.endpoints import Endpoint

assignment_wait_s: Final = 10.0
refresh_pause_s: Final = 0.2
"""Least time between two looks at the oracle because of an answer that turned out wrong."""


class AssignmentHostStore(Service):
    """Follows the assignment by a blocking read. Also an ``EndpointResolver`` for segment clients.

    ``tls``: how the stores that speak TLS are verified. ``tokens``: those of the cluster; stores are shown this
    controller's own.
    """

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        container_count: int,
        clock: Clock,
        tls: ClientTls = SYSTEM_TRUST,
        tokens: DelegationTokens | None = None,
    ) -> None:
        super().__init__("host-store")
        self._tokens = tokens
        self.container_count = container_count
        self._cpo = cpo
        self._tls = tls
        self._clock = clock
        self._assignment = Assignment(0, {})
        self._stores: dict[str, Member] = {}
        self._refreshed_s = float("-inf")
        self._doubted = False
        self._incarnations: frozenset[str] = frozenset()
        """Those of the stores as they were last seen under the assignment that is held."""

    async def on_start(self) -> None:
        await self._refresh()
        self.spawn(self._follow(), "follow")

    @property
    def ownerless(self) -> list[int]:
        """The containers that no live store owns."""
        owners = self._assignment.owners
        return [number for number in range(self.container_count) if owners.get(number) not in self._stores]

    @property
    def placement(self) -> Placement:
        """The containers and their stores, as of the last look."""
        return Placement(self._assignment.version, self.container_count, self._assignment.owners, self._stores)

    async def look_again(self) -> None:
        """Ask the oracle now, unless that was done a moment ago; what is known stays if it does not answer."""
        await self._refresh_again()

    async def owner_of(self, segment: str) -> tuple[str, int]:
        endpoint = await self._endpoint(container_of_segment(segment, self.container_count))
        if endpoint is None:
            raise NoHost(f"no segment store owns the container of {segment} now")
        return endpoint.host, endpoint.port

    async def resolve(self, segment: str) -> Endpoint:
        endpoint = await self._endpoint(container_of_segment(segment, self.container_count))
        if endpoint is None:
            raise Unavailable(f"no segment store owns the container of {segment} now")
        return endpoint

    async def token(self, segment: str) -> str:
        return "" if self._tokens is None else self._tokens.internal()

    def forget(self, segment: str) -> None:
        self._doubted = True

    async def controllers(self) -> Sequence[tuple[str, int]]:
        members = await self._cpo.members(CONTROLLER_KIND)
        found = (Member.from_payload(payload) for payload in members.values())
        return [(member.host, member.port) for member in found]

    async def _endpoint(self, container: int) -> Endpoint | None:
        owner = self._assignment.owners.get(container)
        if self._doubted or owner not in self._stores:
            await self._refresh_again()
            owner = self._assignment.owners.get(container)
        member = self._stores.get(owner) if owner is not None else None
        return None if member is None else Endpoint(member.host, member.port, self._tls if member.tls else None)

    async def _refresh_again(self) -> None:
        if self._clock.monotonic_s() - self._refreshed_s < refresh_pause_s:
            return
        try:
            await self._refresh()
        except PravegaError as error:
            # The last known owners are better than none; epochs protect against wrong ones.
            self.log.warning("assignment was not read", error=repr(error))

    async def _refresh(self) -> None:
        self._refreshed_s = self._clock.monotonic_s()
        self._doubted = False
        members = await self._cpo.members(SEGMENT_STORE_KIND)
        assignment = await self._cpo.get_assignment()
        self._stores = {name: Member.from_payload(payload) for name, payload in members.items()}
        incarnations = frozenset(member.incarnation for member in self._stores.values())
        if assignment.version >= self._assignment.version or self._begins_again(assignment, incarnations):
            self._assignment, self._incarnations = assignment, incarnations or self._incarnations

    def _begins_again(self, assignment: Assignment, incarnations: frozenset[str]) -> bool:
        """Whether an assignment of a lower version counts: the oracle lost its data, and all stores have started since.
        Those that run on keep to what they knew, and so does this."""
        return assignment.version > 0 and bool(incarnations) and not incarnations & self._incarnations

    async def _follow(self) -> None:
        while True:
            try:
                await self._cpo.wait_assignment(self._assignment.version, assignment_wait_s)
                await self._refresh()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("assignment was not read", error=repr(error))
                await self._clock.sleep(1.0)
