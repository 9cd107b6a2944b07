"""Runs the checks of ``doctor`` on the services of a cluster: beside one another, each within a limit of time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pravega_common.errors import PravegaError, UnsupportedOperation
from pravega_common.hashing import container_of_segment
from pravega_common.model.cluster_health import ClusterProblem, DescribedCluster
from pravega_common.names import segment_name
from pravega_spark.commands.connection import cluster_address
from pravega_spark.commands.controller_checks import ControllerChecks
from pravega_spark.commands.findings import Finding, RunningCheck, Tell, check, is_well
from pravega_spark.commands.security_diagnosis import start_security
from pravega_spark.commands.store_checks import StoreChecks
from pravega_spark.commands.transaction import remedy
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.event.event_writer import EventWriter

scratch_events: Final = 20
round_trip_time_max_s: Final = 8.0
"""How long making, writing and reading a stream may take, and its deletion."""
PASSING_CODES: Final = frozenset(("loop-late", "machine"))
"""Problems that are shown and are no failure: the cluster does its work, and more slowly at worst."""
_SEE_CONTROLLER: Final = "look into the controller's log"
_SEE_STORES: Final = "look into the logs of the segment stores; is Redis or the long-term storage full or away?"


def services(controller: str) -> list[Finding]:
    """Checks controllers, segment stores, the problems that they name, and a few events written and read."""
    try:
        address = cluster_address(controller)
    except PravegaError as error:
        return _without_controller([Finding("controller", False, str(error), "write it as tcp://host:port")])
    each = ControllerChecks(address)
    controllers = each.findings()
    if not any(one.is_ok for one in controllers):
        return _without_controller(controllers)
    if not is_well(controllers):
        # Calls go to those that answer; the finding names the others.
        address = each.answering()
    commits = RunningCheck(lambda _: blocked_commits(address), Finding("commits", False, "", _SEE_CONTROLLER))
    stores, trip = StoreChecks(address), _RoundTrip(address, each.described)
    strangers = start_security(address)
    each_store, through = stores.findings(), [commits.finding(), *trip.findings()]
    if not is_well([*each_store, *through]) and not any(one.stops_work for one in each.problems()):
        # What stands still is named some seconds later.
        each.look_again()
    problems = each.problems()
    explained = [_explained(one, problems) for one in through]
    return [*controllers, *_named(problems, each.unknown()), *each_store, *explained, *strangers()]


def _without_controller(found: list[Finding]) -> list[Finding]:
    skipped = "not looked at without a controller"
    return [*found, *(Finding(name, None, skipped) for name in ("segment stores", "round trip"))]


def _named(problems: Sequence[ClusterProblem], unknown: str | None) -> list[Finding]:
    """The findings about what the services themselves say is wrong."""
    if unknown is None:
        return [Finding("problems", None, "not told: by a plain Pravega, or to who may not read all")]
    found = [
        Finding(f"problem: {one.code}", None if one.code in PASSING_CODES else False, one.text, one.remedy)
        for one in problems
    ]
    if unknown:
        found.append(Finding("control plane", False, unknown, "look at the Redis or file that cluster.cpo names"))
    return found or [Finding("problems", True, "no service names one")]


def _explained(finding: Finding, problems: Sequence[ClusterProblem]) -> Finding:
    """The same finding; of a failed one the remedy is that of the worst problem that is known."""
    worst = next((one for one in problems if one.stops_work), None)
    if finding.is_ok is not False or worst is None:
        return finding
    return replace(finding, remedy=f"see problem {worst.code}: {worst.remedy}")


def blocked_commits(address: ControllerAddress) -> Finding:
    """Checks for streams whose commits are blocked."""
    try:
        with StreamClient(address) as client:
            blocked = client.operations.blocked_streams()
    except UnsupportedOperation:
        return Finding("commits", None, "a plain Pravega does not tell")
    except PravegaError as error:
        return Finding("commits", False, str(error), _SEE_CONTROLLER)
    if not blocked:
        return Finding("commits", True, "no stream is blocked")
    scope, stream, obstacles = blocked[0]
    detail = f"{len(blocked)} streams are blocked; {scope}/{stream}: {obstacles[0].detail}"
    return Finding("commits", False, detail, remedy(f"{scope}/{stream}", obstacles[0]))


class _RoundTrip:
    """A stream that is made, written, read and deleted."""

    def __init__(self, address: ControllerAddress, described: DescribedCluster | None) -> None:
        self._address = address
        self._scope = f"doctor-{uuid.uuid4().hex[:12]}"
        self._place = "" if described is None else _place_of(segment_name(self._scope, "probe", 0), described)
        late = Finding("round trip", False, f"scope {self._scope} is left behind; ", _SEE_STORES)
        self._trip = RunningCheck(self._look, late, round_trip_time_max_s)

    def findings(self) -> list[Finding]:
        found = self._trip.finding()
        if self._trip.is_late:
            return [found]
        by_hand = f"delete scope {self._scope} by hand"
        removal = RunningCheck.of("clean-up", by_hand, self._remove, round_trip_time_max_s)
        removed = removal.finding()
        return [found] if removed.is_ok else [found, removed]

    def _look(self, tell: Tell) -> Finding:
        return check("round trip", _SEE_STORES, lambda: self._write_and_read(tell))

    def _write_and_read(self, tell: Tell) -> str:
        start_s = time.perf_counter()
        with StreamClient(self._address) as client:
            written = make_scratch(client, self._scope, tell, self._place)
            tell(f"reading {len(written)} events{self._place}")
            read = [event.data for event in read_events(client, self._scope, "probe")]
        if read != written:
            raise ValueError(f"{len(written)} events were written, and {len(read)} others were read")
        return f"{len(read)} events in {(time.perf_counter() - start_s) * 1000:.0f} ms, stream made and read"

    def _remove(self) -> str:
        with StreamClient(self._address) as client:
            return remove_scratch(client, self._scope)


def _place_of(segment: str, described: DescribedCluster) -> str:
    """The words for the container of a segment and its store."""
    container = container_of_segment(segment, described.container_count)
    owners = [store for store in described.stores if container in store.containers]
    where = f"of store {owners[0].store_id} at {owners[0].address}" if owners else "without a store"
    return f" in container {container} {where}"


def make_scratch(client: StreamClient, scope: str, tell: Tell = lambda _: None, place: str = "") -> list[bytes]:
    """Makes a stream ``probe`` with a few events; returns them."""
    events = [f"event {number}".encode() for number in range(scratch_events)]
    tell("making a scope, which writes to the controllers' tables in the stores")
    client.controller.create_scope(scope)
    tell(f"making a stream with a segment{place}")
    client.controller.create_stream(scope, "probe")
    tell(f"writing {len(events)} events{place}")
    with EventWriter(client, scope, "probe") as writer:
        for event in events:
            writer.write(event, "key")
    return events


def remove_scratch(client: StreamClient, scope: str) -> str:
    if client.controller.stream_exists(scope, "probe"):
        client.controller.seal_stream(scope, "probe")
        client.controller.delete_stream(scope, "probe")
    client.controller.delete_scope(scope)
    return "done"
