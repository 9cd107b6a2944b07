"""Builds a whole controller on in-memory fakes, with a real gRPC port once it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from controller_service.cluster.placement import Placement
from controller_service.config import ControllerConfig
from controller_service.event_processors.request_stream import WireClients
from controller_service.segment_access.revisioned_segments import RevisionedSegments
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.service import Backends, Controller
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.versioned_store import VersionedStore
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import Member
from pravega_common.services.cluster.store_load import StoreLoad
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.segment_access import InMemorySegmentAccess


@dataclass
class StaticHosts:
    """Every container on one store; ``controllers`` as given."""

    host: str = "127.0.0.1"
    port: int = 22346
    known_controllers: list[tuple[str, int]] = field(default_factory=list)
    ownerless: tuple[int, ...] = ()
    container_count: int = 4
    load: StoreLoad | None = None

    async def look_again(self) -> None: ...

    @property
    def placement(self) -> Placement:
        owners = {number: "store" for number in range(self.container_count) if number not in self.ownerless}
        return Placement(1, self.container_count, owners, {"store": Member(self.host, self.port, load=self.load)})

    async def owner_of(self, segment: str) -> tuple[str, int]:
        return self.host, self.port

    async def controllers(self) -> list[tuple[str, int]]:
        return self.known_controllers


@dataclass
class ControllerParts:
    """The state that outlives a controller, so that a second one can be started on it."""

    clock: Clock = field(default_factory=SystemClock)
    cpo: InMemoryCPO = field(default_factory=InMemoryCPO)
    """Its time of day is that of ``clock``, unless a test sets another one."""
    tables: VersionedStore = field(default_factory=InMemoryVersionedStore)
    access: InMemorySegmentAccess = field(default_factory=InMemorySegmentAccess)
    faulty_access: SegmentAccess | None = None
    """What controllers use in place of ``access``."""
    hosts: StaticHosts = field(default_factory=StaticHosts)
    random: Random = field(default_factory=lambda: Random(1))
    clients: WireClients | None = None
    """With them, controllers read their internal streams."""
    revisions: RevisionedSegments | None = None
    """With it, controllers make watermarks."""

    def __post_init__(self) -> None:
        self.cpo.time_of_day = self.clock

    def controller(
        self, *, security: dict[str, Any] | None = None, log: dict[str, Any] | None = None, **settings: Any
    ) -> Controller:
        """A controller that is not started, listening on free ports. ``security``, ``log``: the sections of those
        names."""
        controller = {"listen": "127.0.0.1:0", "rest": "", **settings}
        config = ControllerConfig.from_values({"controller": controller, "security": security or {}, "log": log or {}})
        access = self.faulty_access or self.access
        backends = Backends(
            self.cpo,
            self.hosts,
            self.tables,
            access,
            OracleClock(self.clock),
            self.random,
            clients=self.clients,
            revisions=self.revisions,
        )
        return Controller(config, backends)
