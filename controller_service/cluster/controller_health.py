"""Judges from what its parts know whether a controller does its work, and says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.listed import listed
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.problems import LEASE_LOST, Problem

named_max: Final = 10
"""Containers or streams that one problem names."""


@dataclass(frozen=True, slots=True)
class ControllerHealth:
    """Looks at the parts when it is asked, and keeps nothing."""

    lease_left_s: Callable[[], float]
    """Seconds until the controller's lease ends, negative once it has."""
    ownerless: Callable[[], Sequence[int]]
    """The containers that no live store owns."""
    blocked_streams: Callable[[], Mapping[str, str]]
    """Streams whose commits need an operator, with the reason."""
    loop_lag: LoopLag
    certificate: Callable[[], Sequence[Problem]] = tuple
    """The problems of the certificate that the controller serves."""
    clock: Callable[[], Problem | None] = lambda: None
    """The problem of a time of day that differs from the control plane oracle's."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is worth keeping: its loop turns."""
        return not self.loop_lag.is_stuck

    def problems(self) -> list[Problem]:
        """Lists the problems there are now; those that stop the work come first."""
        return sorted((*self._cluster(), *self._work()), key=lambda problem: not problem.stops_work)

    def _cluster(self) -> Iterator[Problem]:
        left_s = self.lease_left_s()
        if left_s < 0:
            text = f"the lease ran out {-left_s:.0f} s ago: the control plane oracle does not answer"
            yield Problem(LEASE_LOST, text, "look at the Redis or file that cluster.cpo names", stops_work=True)
        ownerless = self.ownerless()
        if ownerless:
            text = f"containers {listed(list(map(str, ownerless)), named_max)} have no live segment store"
            remedy = "start segment stores, or look at the health of those that run"
            yield Problem("containers-without-store", text, remedy, stops_work=True)

    def _work(self) -> Iterator[Problem]:
        blocked = self.blocked_streams()
        if blocked:
            text = f"commits of {listed(sorted(blocked), named_max)} wait for an operator"
            remedy = "pravega-spark stream info says why, and what to do"
            yield Problem("streams-blocked", text, remedy, stops_work=False)
        late = self.loop_lag.problem("controller", "give the process more CPU, or add controllers")
        if late is not None:
            yield late
        yield from self.certificate()
        differs = self.clock()
        if differs is not None:
            yield differs
