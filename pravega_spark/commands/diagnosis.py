"""Runs the checks of ``doctor`` on the services of a cluster: beside one another, each within a limit of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pravega_common.errors import AccessDenied, PravegaError, UnsupportedOperation
from pravega_common.hashing import container_of_segment
from pravega_common.model.cluster_health import ClusterProblem, DescribedCluster
from pravega_common.names import segment_name
from pravega_spark.commands.connection import cluster_address
from pravega_spark.commands.controller_checks import ControllerChecks
from pravega_spark.commands.findings import Finding, RunningCheck, Tell, check, is_well, not_permitted
from pravega_spark.commands.scratch import STREAM, make_events, remove_leftovers, remove_scratch, scratch_scope
from pravega_spark.commands.security_diagnosis import start_security
from pravega_spark.commands.store_checks import StoreChecks
from pravega_spark.commands.transaction import remedy
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.address import ControllerAddress

round_trip_time_max_s: Final = 8.0
"""How long making, writing and reading a stream may take, and its deletion."""
cut_off_time_max_s: Final = 4.0
"""How long the deletion of a round trip may take that did not end, or that somebody interrupted."""
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
    try:
        strangers = start_security(address)
        each_store, through = stores.findings(), [commits.finding(), *trip.findings()]
    except BaseException:
        trip.cut_off()
        raise
    if is_well(through):
        through += _of_earlier_runs(address)
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
    except AccessDenied as error:
        return not_permitted("commits", error)
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
        self._scope = scratch_scope()
        self._place = "" if described is None else _place_of(segment_name(self._scope, STREAM, 0), described)
        self._ended, self._is_cut_off = threading.Event(), threading.Event()
        self._is_denied = False
        """Whether the scope could not be made, so that nothing is to be removed."""
        late = Finding("round trip", False, "", _SEE_STORES)
        self._trip = RunningCheck(self._look, late, round_trip_time_max_s)

    def findings(self) -> list[Finding]:
        found = self._trip.finding()
        if self._trip.is_late:
            left = "" if self.cut_off() else f"scope {self._scope} is left behind for a later run to remove; "
            return [replace(found, detail=f"{left}{found.detail}")]
        if self._is_denied:
            return [found]
        removed = self._removal(round_trip_time_max_s)
        return [found] if removed.is_ok else [found, removed]

    def cut_off(self) -> bool:
        """Ends the trip before its next step; whether its scope could be removed."""
        self._is_cut_off.set()
        return self._removal(cut_off_time_max_s).is_ok is True

    def _removal(self, time_max_s: float) -> Finding:
        by_hand = f"delete scope {self._scope} by hand"
        return RunningCheck.of("clean-up", by_hand, self._remove, time_max_s).finding()

    def _look(self, tell: Tell) -> Finding:
        try:
            return check("round trip", _SEE_STORES, lambda: self._write_and_read(self._until_cut_off(tell)))
        finally:
            self._ended.set()

    def _until_cut_off(self, tell: Tell) -> Tell:
        def tell_and_go_on(step: str) -> None:
            if self._is_cut_off.is_set():
                raise ValueError(f"cut off before {step}")
            tell(step)

        return tell_and_go_on

    def _write_and_read(self, tell: Tell) -> str:
        start_s = time.perf_counter()
        with StreamClient(self._address) as client:
            self._make_scope(client, tell)
            written = make_events(client, self._scope, tell, self._place)
            tell(f"reading {len(written)} events{self._place}")
            read = [event.data for event in read_events(client, self._scope, STREAM)]
        if read != written:
            raise ValueError(f"{len(written)} events were written, and {len(read)} others were read")
        return f"{len(read)} events in {(time.perf_counter() - start_s) * 1000:.0f} ms, stream made and read"

    def _make_scope(self, client: StreamClient, tell: Tell) -> None:
        tell("making a scope, which writes to the controllers' tables in the stores")
        try:
            client.controller.create_scope(self._scope)
        except AccessDenied:
            self._is_denied = True
            raise

    def _remove(self) -> str:
        self._ended.wait()  # what it still makes would come after the deletion; the check bounds this
        with StreamClient(self._address) as client:
            return remove_scratch(client, self._scope)


def _of_earlier_runs(address: ControllerAddress) -> list[Finding]:
    """Removes the scopes of runs that were cut off; a finding if there were some, or if it could not be done."""
    removed: list[str] = []

    def remove() -> str:
        with StreamClient(address) as client:
            removed.extend(remove_leftovers(client, time.time()))
        return f"removed what earlier runs left behind: {', '.join(removed)}"

    found = RunningCheck.of("clean-up", "delete scopes doctor-… by hand", remove, round_trip_time_max_s).finding()
    # What is left is no failure of the cluster.
    return [] if found.is_ok and not removed else [found if found.is_ok else replace(found, is_ok=None)]


def _place_of(segment: str, described: DescribedCluster) -> str:
    """The words for the container of a segment and its store."""
    container = container_of_segment(segment, described.container_count)
    owners = [store for store in described.stores if container in store.containers]
    where = f"of store {owners[0].store_id} at {owners[0].address}" if owners else "without a store"
    return f" in container {container} {where}"
