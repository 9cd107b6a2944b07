"""Keeps a store's place in the cluster: its lease, and the containers that the assignment gives it.

A container that stops by itself is not started again here. It is reported with the lease, together with the version
of the assignment under which it failed, and starts when a later version assigns it (also to this store again). Not
reaching the CPO stops nothing: only another assignment, or a fence in the container's own log, does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.invariants import InvariantViolation
from pravega_common.services.base import Service, ServiceState
from pravega_common.services.cluster.cpo import Assignment, ControlPlaneOracle
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from pravega_common.services.cluster.store_load import StoreLoad
from pravega_common.services.problems import LEASE_LOST, Problem
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import SegmentContainer
from segment_service.container.start_counts import StartCounts

assignment_wait_s: Final = 5.0
"""One blocking read of the assignment; the poll that makes up for a lost wake-up."""
retry_pause_s: Final = 0.5
"""Pause after a call to the CPO that failed."""
renewals_per_lease: Final = 3
failure_reason_chars_max: Final = 500
"""Characters of an error that are reported with the lease."""


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """A store's identity and its lease."""

    store_id: str
    host: str
    port: int
    incarnation: str
    lease_ms: int
    stale_read_max_ms: int
    """After being without a lease for this long the store says that it hosts nothing."""
    tls: bool = False
    """Whether the store's port speaks TLS."""


class ContainerManager(Service):
    """Starts and stops containers, each by its own task, so that a slow one holds up no other."""

    def __init__(
        self,
        config: ManagerConfig,
        cpo: ControlPlaneOracle,
        registry: ContainerRegistry,
        make_container: Callable[[int], SegmentContainer],
        clock: OracleClock,
        load: Callable[[], StoreLoad | None] = lambda: None,
        problems: Callable[[], Sequence[Problem]] = tuple,
        starts: StartCounts | None = None,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        """``load``, ``problems``: the store's figures and what its health names, which go with each renewal of its
        lease. ``on_dropped``: called when a container has stopped and is not needed any more."""
        super().__init__("container-manager")
        self._load = load
        self._problems = problems
        self._config = config
        self._cpo = cpo
        self._registry = registry
        self._make_container = make_container
        self._on_dropped = on_dropped
        self._starts = starts or StartCounts()
        self._clock = clock
        self._assignment = Assignment(0, {})
        self._wanted: set[int] = set()
        self._failed: dict[int, int] = {}
        """Containers that stopped by themselves, with the version under which they did."""
        self._reasons: dict[int, str] = {}
        """The errors of the containers that failed."""
        self._live: dict[int, SegmentContainer] = {}
        """Containers being started, running, or being stopped."""
        self._busy: set[int] = set()
        self._given_up: set[SegmentContainer] = set()
        """Containers that are stopped while they start, as another store is to have them."""
        self._lease_ends_s = 0.0

    async def on_start(self) -> None:
        await self._renew()
        self.spawn(self._keep_lease(), "keep-lease")
        self.spawn(self._follow_assignment(), "follow-assignment")

    async def on_stop(self) -> None:
        self._wanted = set()
        containers = list(self._live.values())
        for container in containers:
            self._registry.remove(container)
        await asyncio.gather(*(container.stop() for container in containers), return_exceptions=True)
        try:
            await self._cpo.release_lease(SEGMENT_STORE_KIND, self._config.store_id)
        except PravegaError as error:
            self.log.warning("the lease could not be released and will run out", error=repr(error))

    @property
    def is_stale(self) -> bool:
        """Whether the lease ran out so long ago that others have certainly taken over."""
        return self._clock.monotonic_s() > self._lease_ends_s + self._config.stale_read_max_ms / 1000

    @property
    def lease_left_s(self) -> float:
        """Seconds until the lease ends; negative once it has."""
        return self._lease_ends_s - self._clock.monotonic_s()

    @property
    def not_serving(self) -> dict[int, dict[str, str]]:
        """The assigned containers that take no requests: their state, and what they wait for or why they failed."""
        failed = {
            container: {"state": "failed", "reason": self._reasons.get(container, "")} for container in self._failed
        }
        starting = {
            container.container_id: {"state": container.state.value, "waits_for": container.waits_for}
            for container in self._live.values()
            if not container.is_running
        }
        ahead = self._wanted - self._live.keys() - failed.keys()
        waiting = {container: {"state": "new", "waits_for": "its turn to start"} for container in ahead}
        return {**waiting, **failed, **starting}

    async def _renew(self) -> None:
        failed = tuple(sorted(self._failed.items()))
        reasons = tuple((container, self._reasons.get(container, "")) for container, _ in failed)
        member = Member(
            self._config.host,
            self._config.port,
            self._config.incarnation,
            failed,
            reasons,
            self._config.tls,
            self._load(),
            tuple(problem for problem in self._problems() if problem.code != LEASE_LOST),
        )
        asked_s = await self._clock.follow(
            self._cpo.renew_lease(SEGMENT_STORE_KIND, self._config.store_id, member.to_payload(), self._config.lease_ms)
        )
        self._lease_ends_s = asked_s + self._config.lease_ms / 1000

    async def _keep_lease(self) -> None:
        pause_s = self._config.lease_ms / 1000 / renewals_per_lease
        while True:
            await self._clock.sleep(pause_s)
            while not await self._try_renew():
                await self._clock.sleep(min(retry_pause_s, pause_s))

    async def _try_renew(self) -> bool:
        try:
            await self._renew()
        except PravegaError as error:
            self.log.warning("the lease could not be renewed", error=repr(error), is_stale=self.is_stale)
            return False
        return True

    async def _follow_assignment(self) -> None:
        while True:
            try:
                assignment = await self._cpo.wait_assignment(self._assignment.version, assignment_wait_s)
            except PravegaError as error:
                self.log.warning("the assignment could not be read", error=repr(error))
                await self._clock.sleep(retry_pause_s)
                continue
            if self.state is ServiceState.STOPPING:
                return  # a container that is taken over now would go with the others, or be cut off in its start
            if assignment.version > self._assignment.version:
                self._apply(assignment)
            elif assignment.version < self._assignment.version:
                # A CPO that lost its data must not stop containers; their logs know who owns them.
                self.log.error("the assignment went back", ours=self._assignment.version, theirs=assignment.version)
                await self._clock.sleep(retry_pause_s)

    def _apply(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._wanted = {container for container, owner in assignment.owners.items() if owner == self._config.store_id}
        self._failed = {
            container: version
            for container, version in self._failed.items()
            if container in self._wanted and version >= assignment.version
        }
        self.log.info("assignment", version=assignment.version, containers=sorted(self._wanted))
        for container_id in self._wanted | self._live.keys():
            self._reconcile_soon(container_id)
        for container_id in self._busy & self._live.keys() - self._wanted:
            container = self._live[container_id]
            if container.state is ServiceState.STARTING:  # it may wait for long, and another store starts it
                self._given_up.add(container)
                self.spawn(container.stop(), f"give-up-{container_id}")

    def _reconcile_soon(self, container_id: int) -> None:
        if container_id not in self._busy:
            self._busy.add(container_id)
            self.spawn(self._reconcile(container_id), f"container-{container_id}")

    async def _reconcile(self, container_id: int) -> None:
        """Bring one container to what the assignment says; one task per container at a time."""
        try:
            while True:
                wanted = container_id in self._wanted and container_id not in self._failed
                live = self._live.get(container_id)
                if wanted and live is None:
                    await self._start_container(container_id)
                elif live is not None and not wanted:
                    await self._stop_container(live)
                else:
                    return
        finally:
            self._busy.discard(container_id)

    async def _start_container(self, container_id: int) -> None:
        container = self._live[container_id] = self._make_container(container_id)
        container.on_failure(lambda error: self._container_failed(container, error))
        began_s = self._clock.monotonic_s()
        try:
            await container.start()
        except (Exception, InvariantViolation) as error:
            self._container_failed(container, error)
            return
        if container.is_running:
            self._registry.add(container)
            self._starts.recoveries.note(self._clock.monotonic_s() - began_s)

    async def _stop_container(self, container: SegmentContainer) -> None:
        self._registry.remove(container)
        await container.stop()
        self._forget(container)

    def _container_failed(self, container: SegmentContainer, error: BaseException) -> None:
        """A container stopped by itself: report it, and wait for it to be assigned again."""
        is_given_up = container in self._given_up
        if not self._forget(container):
            return
        self._registry.remove(container)
        if is_given_up:
            return  # It did not fail, and may be assigned here again by now.
        self._starts.failures += 1
        self.log.error("container failed", container=container.container_id, error=repr(error))
        if container.container_id in self._wanted:
            self._failed[container.container_id] = self._assignment.version
            self._reasons[container.container_id] = str(error)[:failure_reason_chars_max]
            self.spawn(self._try_renew(), "report-failure")

    def _forget(self, container: SegmentContainer) -> bool:
        if self._live.get(container.container_id) is not container:
            return False
        del self._live[container.container_id]
        self._given_up.discard(container)
        self._on_dropped()
        return True
