"""Lists the problems of a controller, those that stop its work first."""

from __future__ import annotations

from controller_service.cluster.controller_health import ControllerHealth
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.problems import Problem
from tests.support.fakes.clock import ManualClock

DIFFERS = Problem("clock-differs", "the clock is 60 s ahead", "set it", stops_work=False)
ENDS = Problem("certificate-ends", "the certificate ends in 3 days", "replace its files", stops_work=False)


def test_a_controller_that_is_well_has_no_problem() -> None:
    assert ControllerHealth(lambda: 1.0, tuple, dict, LoopLag(ManualClock())).problems() == []


def test_what_stops_the_work_comes_first() -> None:
    health = ControllerHealth(
        lambda: -3.0, lambda: (2,), lambda: {"s/t": "lost"}, LoopLag(ManualClock()), lambda: [ENDS], lambda: DIFFERS
    )
    assert [one.code for one in health.problems()] == [
        "lease-lost",
        "containers-without-store",
        "streams-blocked",
        "certificate-ends",
        "clock-differs",
    ]
