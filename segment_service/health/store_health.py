"""Judges from what its parts measure whether a store does its work, and says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.listed import listed
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.problems import LEASE_LOST, Problem
from segment_service import tier1_memory_watch, tier1_settings_watch
from segment_service.container.registry import ContainerRegistry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.storage.measured_chunks import MeasuredChunkStorage

tier1_answer_max_s: Final = 5.0
"""How long a frame may wait for Tier 1, and a server be silent, before the store says so."""
tier2_failing_max_s: Final = 10.0
"""How long all calls to Tier 2 may fail before the store says so."""
reason_chars_max: Final = 300
"""Characters of an error inside a problem's text."""
named_max: Final = 10
"""Containers that one problem names."""
segments_named_max: Final = 3
"""Damaged segments that one problem names: it travels with the lease, and their names are long."""


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """The store's place in the cluster, as its container manager sees it."""

    lease_left_s: float
    not_serving: Mapping[int, Mapping[str, str]]
    clock: Problem | None = None
    """The problem of a time of day that differs from the control plane oracle's."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Looks at the parts when it is asked, and keeps nothing."""

    place: Callable[[], ClusterPlace | None]
    """``None`` before the store has joined the cluster."""
    registry: ContainerRegistry
    groups: Callable[[Iterable[str]], Mapping[str, tuple[str, ...]]]
    """The servers of each persistence group of Redis that the settings name, and of the given ones; none for a log in
    files."""
    silent_s: Callable[[str], float]
    """How long a server has not answered."""
    tier2: MeasuredChunkStorage
    back_pressure: StoreBackPressure
    loop_lag: LoopLag
    warning: str = ""
    """What the operator should change about the machine."""
    certificate: Callable[[], Sequence[Problem]] = tuple
    """The problems of the certificate that the store serves."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is worth keeping: its loop turns."""
        return not self.loop_lag.is_stuck

    def servers_out(self) -> dict[str, str]:
        """Plog servers that do not take part in some container's log, and why."""
        out: dict[str, str] = {}
        for one in self.registry:
            out.update(one.durable_log.replication.servers_out)
        return out

    def problems(self) -> list[Problem]:
        """Lists the problems there are now; those that stop the work come first."""
        found = [*self._cluster(), *self._tier1(), *self._tier2(), *self._data(), *self._process()]
        return sorted(found, key=lambda problem: not problem.stops_work)

    def _cluster(self) -> Iterator[Problem]:
        place = self.place()
        if place is None:
            yield Problem("starting", "the store has not joined its cluster yet", _WAIT, stops_work=True)
            return
        if place.lease_left_s < 0:
            text = (
                f"the store has had no lease for {-place.lease_left_s:.0f} s: the control plane oracle does not answer"
            )
            yield Problem(LEASE_LOST, text, "look at the Redis or file that cluster.cpo names", stops_work=True)
        failed = {number: state for number, state in place.not_serving.items() if state.get("state") == "failed"}
        if failed:
            number, state = min(failed.items())
            reason = state.get("reason", "")[:reason_chars_max]
            text = f"{_containers(failed)} failed; {number}: {reason}"
            yield Problem("container-failed", text, "mend what the reason names: it is tried again", stops_work=True)
        starting = {number: state for number, state in place.not_serving.items() if number not in failed}
        if starting:
            number, state = min(starting.items())
            text = f"{_containers(starting)} not running yet; {number} waits for: {state.get('waits_for', '')}"
            yield Problem("container-starting", text[: 2 * reason_chars_max], _WAIT, stops_work=True)
        if place.clock is not None:
            yield place.clock

    def _tier1(self) -> Iterator[Problem]:
        waiting = {one.container_id: one.durable_log.unanswered_s for one in self.registry}
        slow = {number: waited for number, waited in waiting.items() if waited > tier1_answer_max_s}
        if slow:
            text = f"{_containers(slow)} got no acknowledgement of Tier 1 for {max(slow.values()):.0f} s"
            yield Problem("tier1-not-acknowledging", text, _SEE_TIER1, stops_work=True)
        full = [one.container_id for one in self.registry if one.durable_log.is_full]
        if full:
            text = f"{_containers(full)}: Tier 1 has no room, appends wait"
            yield Problem("tier1-full", text, _FREE_TIER1, stops_work=True)
        for name, servers in self.groups(self.registry.log_groups()).items():
            silent = [server for server in servers if self.silent_s(server) > tier1_answer_max_s]
            if silent:
                text = f"{', '.join(silent)} of {len(servers)} servers of group {name} give no answer"
                yield Problem("tier1-silent", text, _SEE_TIER1, stops_work=2 * len(silent) >= len(servers))

    def _tier2(self) -> Iterator[Problem]:
        failing_s = self.tier2.failing_s
        if failing_s > tier2_failing_max_s:
            text = f"all calls to Tier 2 have failed for {failing_s:.0f} s: {self.tier2.last_error[:reason_chars_max]}"
            yield Problem("tier2-failing", text, "bring the store that tier2.url names back", stops_work=True)
        pressure = self.back_pressure
        held = sorted(pressure.held_by)
        if not pressure.is_open:
            are_many = pressure.operations >= pressure.operations_max
            waiting = f"{pressure.operations} operations" if are_many else f"{pressure.bytes >> 20} MiB"
            why = f"held by {', '.join(held)}" if held else f"{waiting} wait for Tier 2"
            remedy = next((_REMEDY_OF[part] for part in held if part in _REMEDY_OF), "look at Tier 2 and its speed")
            yield Problem("appends-wait", f"appends wait: {why}", remedy, stops_work=False)

    def _data(self) -> Iterator[Problem]:
        damaged = [(one.container_id, *found) for one in self.registry for found in one.metadata.damaged_segments()]
        if damaged:
            names = [name for _, name, _ in damaged]
            named, reason = listed(names, segments_named_max), damaged[0][2][:reason_chars_max]
            text = f"{len(names)} segments are damaged in Tier 2: {named}; {names[0]}: {reason}"
            remedy = "restore the objects that /health names, or delete the segments"
            yield Problem("segments-damaged", text, remedy, stops_work=False)
        out = self.servers_out()
        if out:
            server, reason = min(out.items())
            text = f"plog servers {', '.join(sorted(out))} do not take part; {server}: {reason[:reason_chars_max]}"
            remedy = "bring them back, or replace them: pravega-spark cluster replace-server"
            yield Problem("plog-servers-out", text, remedy, stops_work=False)

    def _process(self) -> Iterator[Problem]:
        late = self.loop_lag.problem("store", "give the process more CPU, or spread containers")
        if late is not None:
            yield late
        yield from self.certificate()
        if self.warning:
            yield Problem("machine", self.warning, "change it and start the store again", stops_work=False)


_WAIT: Final = "wait; if it lasts, look at the store's log"
_FREE_TIER1: Final = (
    "look at Tier 2, as what it has is freed in Tier 1; else raise maxmemory of Redis, or add a group of servers; with "
    "Tier 1 in files, make room on their disk"
)
_REMEDY_OF: Final = {
    tier1_memory_watch.HELD_BY: _FREE_TIER1,
    tier1_settings_watch.HELD_BY: "set the Redis servers of Tier 1 right again: the store's log says which settings",
}
"""The remedies of appends that a part other than Tier 2 holds up."""
_SEE_TIER1: Final = (
    "look at the Redis servers of Tier 1, their disk and the network to them; with Tier 1 in files, at their disk"
)


def _containers(numbers: Mapping[int, object] | list[int]) -> str:
    return f"containers {listed([str(number) for number in sorted(numbers)], named_max)}"
