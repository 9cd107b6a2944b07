"""Reports the health of a controller's parts, in the shape of Pravega's REST API (docs/controller-api.md 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from controller_service.api.rest.bodies import HealthResult, HealthStatus
from controller_service.api.rest.operation import RestOperation
from controller_service.cluster.controller_health import ControllerHealth
from pravega_common.errors import NotFound
from pravega_common.resources import ROOT
from pravega_common.services.base import Service, ServiceState
from pravega_common.services.problems import is_ready
from pravega_common.services.security.principal import may_see

_STATUS: Final[dict[ServiceState, HealthStatus]] = {
    ServiceState.NEW: "NEW",
    ServiceState.STARTING: "STARTING",
    ServiceState.RUNNING: "UP",
    ServiceState.STOPPING: "DOWN",
    ServiceState.STOPPED: "DOWN",
    ServiceState.FAILED: "FAILED",
}
REFERENCE_IDS: Final = {
    "assignment-leader": "segmentContainerMonitor",
    "membership": "clusterListener",
    "retention": "retentionService",
    "watermarks": "watermarkingService",
    "grpc-server": "GRPCServer",
}
"""What Pravega calls those services that it has as well."""
EVENT_PROCESSOR: Final = "eventProcessor"
"""Pravega's id of all event processors together; ours are its children."""
_PROCESSOR_PREFIX: Final = "event-processor-"


class HealthRegistry:
    """The services to ask, by Pravega's ids where it has the same part, else by their names.

    The whole is ready when ``all_added`` was called, every part is up, and no problem stops the work.
    """

    def __init__(self, judge: ControllerHealth | None = None) -> None:
        """``judge``: finds what is wrong though every part is up; ``None`` for nobody."""
        self.judge = judge
        self._services: dict[str, Service] = {}
        self._details: dict[str, Callable[[], dict[str, Any]]] = {}
        self._complete = False

    def add(self, service: Service, details: Callable[[], dict[str, Any]] | None = None) -> None:
        """``details``: further facts about the part, in JSON; it says nothing about being up or ready."""
        self._services[_id_of(service.name)] = service
        if details is not None:
            self._details[service.name] = details

    def all_added(self) -> None:
        """Declare that no part will be added any more."""
        self._complete = True

    def result(self, name: str) -> HealthResult:
        """One part's health, by its id or its service's own name; ``NotFound`` for an unknown part."""
        processors = self._processors()
        if name == EVENT_PROCESSOR and processors:
            return _together(EVENT_PROCESSOR, processors)
        service = self._services.get(_id_of(name))
        if service is None:
            raise NotFound(f"this controller has no part {name!r}")
        return self._result(service)

    def overall(self) -> HealthResult:
        processors = self._processors()
        children = {name: self._result(found) for name, found in self._services.items() if name not in processors}
        if processors:
            children[EVENT_PROCESSOR] = _together(EVENT_PROCESSOR, processors)
        problems = self.judge.problems() if self.judge is not None and self._complete else []
        ready = self._complete and all(child.readiness for child in children.values()) and is_ready(problems)
        alive = all(child.liveness for child in children.values()) and (self.judge is None or self.judge.is_alive)
        status: HealthStatus = "UP" if ready else "STARTING" if alive and not self._complete else "DOWN"
        details = {**_states(children), "problems": [problem.to_json() for problem in problems]}
        return HealthResult(name="", status=status, readiness=ready, liveness=alive, details=details, children=children)

    def _processors(self) -> dict[str, HealthResult]:
        found = self._services.items()
        return {name: self._result(service) for name, service in found if name.startswith(_PROCESSOR_PREFIX)}

    def _result(self, service: Service) -> HealthResult:
        details: dict[str, Any] = {"state": service.state.value}
        if service.name in self._details:
            details |= self._details[service.name]()
        if service.failure is not None:
            details["failure"] = repr(service.failure)
        return HealthResult(
            name=_id_of(service.name),
            status=_STATUS[service.state],
            readiness=service.state is ServiceState.RUNNING,
            liveness=service.state in (ServiceState.NEW, ServiceState.STARTING, ServiceState.RUNNING),
            details=details,
            children={},
        )


def _id_of(name: str) -> str:
    return REFERENCE_IDS.get(name, name)


def _status_of_answer(answer: object) -> int:
    """Returns the status of an answer: what is asked by load balancers is 503 when the answer is no."""
    return 503 if answer is False else 200


def _told(health: HealthResult) -> HealthResult:
    """Leaves out details, which name streams and transactions, for a caller who may not read them."""
    if may_see(ROOT):
        return health
    children = {name: _told(child) for name, child in health.children.items()}
    return health.model_copy(update={"details": {}, "children": children})


def _together(name: str, children: dict[str, HealthResult]) -> HealthResult:
    """As healthy as the least healthy part."""
    ready = all(child.readiness for child in children.values())
    alive = all(child.liveness for child in children.values())
    status: HealthStatus = "UP" if ready else "STARTING" if alive else "DOWN"
    return HealthResult(
        name=name, status=status, readiness=ready, liveness=alive, details=_states(children), children=children
    )


def _states(children: dict[str, HealthResult]) -> dict[str, Any]:
    """Lists the status of each part: ``details`` alone, without its children, tells which one is not up."""
    return {"parts": {name: child.status for name, child in children.items()}}


class HealthOperations:
    def __init__(self, health: HealthRegistry) -> None:
        self._health = health

    def operations(self) -> Sequence[RestOperation]:
        """Each aspect of the whole, and the same of a part."""
        aspects: tuple[tuple[str, str, Callable[..., Any], Callable[..., Any]], ...] = (
            ("", "health", self.overall, self.of_part),
            ("/readiness", "readiness", self.readiness, self.readiness_of_part),
            ("/liveness", "liveness", self.liveness, self.liveness_of_part),
            ("/status", "status", self.status, self.status_of_part),
            ("/details", "details", self.details, self.details_of_part),
        )

        def operation(path: str, text: str, handle: Callable[..., Any], errors: tuple[int, ...] = ()) -> RestOperation:
            return RestOperation(
                "GET", f"/v1/health{path}", text, handle, errors, tag="health", status_if=_status_of_answer
            )

        whole = [operation(path, f"Tells the controller's {name}.", handle) for path, name, handle, _ in aspects]
        parts = [
            operation(f"{path}/{{id}}", f"Tells a part's {name}.", handle, (404,)) for path, name, _, handle in aspects
        ]
        ping = RestOperation("GET", "/ping", "Answers.", self.ping, tag="health")
        return ping, *whole, *parts

    async def ping(self) -> None:
        """Does nothing: that it is answered is all."""

    async def overall(self) -> HealthResult:
        return _told(self._health.overall())

    async def of_part(self, id: str) -> HealthResult:
        return _told(self._health.result(id))

    async def readiness(self) -> bool:
        return self._health.overall().readiness

    async def readiness_of_part(self, id: str) -> bool:
        return self._health.result(id).readiness

    async def liveness(self) -> bool:
        return self._health.overall().liveness

    async def liveness_of_part(self, id: str) -> bool:
        return self._health.result(id).liveness

    async def status(self) -> HealthStatus:
        return self._health.overall().status

    async def status_of_part(self, id: str) -> HealthStatus:
        return self._health.result(id).status

    async def details(self) -> dict[str, Any]:
        return self._health.overall().details

    async def details_of_part(self, id: str) -> dict[str, Any]:
        return self._health.result(id).details
