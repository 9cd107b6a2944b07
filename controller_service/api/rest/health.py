"""Reports the health of a controller's parts, in the shape of Pravega's REST API (docs/controller-api.md 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pravega_common.services.base import Service, ServiceState

_STATUS: Final = {
    ServiceState.NEW: "NEW",
    ServiceState.STARTING: "STARTING",
    ServiceState.RUNNING: "UP",
    ServiceState.STOPPING: "DOWN",
    ServiceState.STOPPED: "DOWN",
    ServiceState.FAILED: "FAILED",
}


class HealthRegistry:
    """The services to ask, by name. The whole is ready when ``all_added`` was called and every part is up."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._details: dict[str, Callable[[], dict[str, Any]]] = {}
        self._complete = False

    def add(self, service: Service, details: Callable[[], dict[str, Any]] | None = None) -> None:
        """``details``: further facts about the part, in JSON; it says nothing about being up or ready."""
        self._services[service.name] = service
        if details is not None:
            self._details[service.name] = details

    def all_added(self) -> None:
        """Declare that no part will be added any more."""
        self._complete = True

    def find(self, name: str) -> Service | None:
        return self._services.get(name)

    def result(self, name: str) -> dict[str, Any] | None:
        """One part's health; None for an unknown part."""
        service = self._services.get(name)
        return None if service is None else self._result(service)

    def overall(self) -> dict[str, Any]:
        children = {name: self._result(service) for name, service in self._services.items()}
        ready = self._complete and all(child["readiness"] for child in children.values())
        alive = all(child["liveness"] for child in children.values())
        status = "UP" if ready else "STARTING" if alive and not self._complete else "DOWN"
        return {
            "name": "",
            "status": status,
            "readiness": ready,
            "liveness": alive,
            "details": {},
            "children": children,
        }

    def _result(self, service: Service) -> dict[str, Any]:
        details = self._details[service.name]() if service.name in self._details else {}
        if service.failure is not None:
            details = {**details, "failure": repr(service.failure)}
        return {
            "name": service.name,
            "status": _STATUS[service.state],
            "readiness": service.state is ServiceState.RUNNING,
            "liveness": service.state in (ServiceState.NEW, ServiceState.STARTING, ServiceState.RUNNING),
            "details": details,
            "children": {},
        }
