"""Checks the controllers of a cluster for ``doctor``, and keeps what each tells of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pravega_common.errors import AccessDenied, UnsupportedOperation
from pravega_common.model.cluster_health import ClusterProblem, DescribedCluster
from pravega_spark.commands.connection import check_listens
from pravega_spark.commands.findings import Finding, RunningCheck, median_ms
from pravega_streams.client import StreamClient
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress


class ControllerChecks:
    """The checks of all controllers that the address names, and what each tells of the cluster."""

    def __init__(self, address: ControllerAddress) -> None:
        self._address = address
        self._told: dict[Endpoint, DescribedCluster] = {}
        self._running: dict[Endpoint, RunningCheck] = {}
        self._ask(address.endpoints)

    def findings(self) -> list[Finding]:
        return [running.finding() for running in self._running.values()]

    def look_again(self) -> None:
        """Ask those that answered once more."""
        self._ask(self.answering().endpoints)
        self.findings()

    def answering(self) -> ControllerAddress:
        """The address of those that answered."""
        good = tuple(one for one, running in self._running.items() if running.finding().is_ok)
        return replace(self._address, uri=",".join(map(str, good)), endpoints=good)

    @property
    def described(self) -> DescribedCluster | None:
        """The cluster as one of them told it; ``None`` if nobody did."""
        return next(iter(self._told.values()), None)

    def problems(self) -> list[ClusterProblem]:
        """Those that any of them named, the worst first."""
        return merged({str(endpoint): told.problems for endpoint, told in self._told.items()})

    def unknown(self) -> str | None:
        """Why the control plane could not be looked at, empty if it could; ``None`` if nobody told anything."""
        return None if not self._told else next((one.unknown for one in self._told.values() if one.unknown), "")

    def _ask(self, endpoints: Sequence[Endpoint]) -> None:
        for endpoint in endpoints:
            name = "controller" if len(self._address.endpoints) == 1 else f"controller {endpoint}"
            self._running[endpoint] = RunningCheck.of(
                name, "start one with: pravega-spark standalone; one that hangs: kill it", self._look_at(endpoint)
            )

    def _look_at(self, endpoint: Endpoint) -> Callable[[], str]:
        alone = replace(self._address, uri=str(endpoint), endpoints=(endpoint,))

        def look() -> str:
            check_listens(alone)
            with StreamClient(alone) as client:
                took_ms = median_ms(lambda: _ask_anything(client))
                try:
                    self._told[endpoint] = client.health.describe()
                except (UnsupportedOperation, AccessDenied):
                    pass  # the finding about problems says so
            return f"{endpoint}, {took_ms:.1f} ms"

        return look


def _ask_anything(client: StreamClient) -> None:
    """A question that a controller answers by itself."""
    try:
        client.controller.delegation_token("doctor", "probe")
    except AccessDenied:
        pass  # that is an answer, too


def merged(told: Mapping[str, Sequence[ClusterProblem]]) -> list[ClusterProblem]:
    """Joins what controllers tell; a problem that not all of them name in the same words has its controller's name."""
    count = Counter(one for problems in told.values() for one in set(problems))
    named = dict.fromkeys(
        one if count[one] == len(told) else replace(one, text=f"controller {name}: {one.text}")
        for name, problems in told.items()
        for one in problems
    )
    return sorted(named, key=lambda one: not one.stops_work)
