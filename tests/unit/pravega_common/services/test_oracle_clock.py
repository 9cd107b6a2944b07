"""Tells the oracle's time of day by clocks that differ or are set, and by answers that take long."""

from __future__ import annotations

import pytest

from pravega_common.services.cluster.oracle_clock import OracleClock, difference_max_s
from tests.support.fakes.clock import ManualClock

START_MS = 1_700_000_000_000


@pytest.fixture
def machine() -> ManualClock:
    return ManualClock(wall_ms=START_MS)


@pytest.fixture
def clock(machine: ManualClock) -> OracleClock:
    return OracleClock(machine)


@pytest.mark.parametrize(
    ("oracle_s", "took_s", "ahead_s"),
    [
        (-60, 0, 60),
        (60, 0, -60),
        (0, 0, 0),
        (0, 100, 0),
        (100, 100, 0),
        (-60, 100, 60),
        (160, 100, -60),
    ],
)
async def test_the_least_difference_that_explains_an_answer(
    machine: ManualClock, clock: OracleClock, oracle_s: int, took_s: int, ahead_s: int
) -> None:
    """An answer that takes long is no difference: the oracle may have read its time at the end, or the beginning."""
    await machine.advance(took_s)
    clock.note(START_MS, START_MS + oracle_s * 1000)
    assert clock.ahead_s == pytest.approx(ahead_s)
    await machine.advance(3_600)
    assert clock.ahead_s == pytest.approx(ahead_s)
    assert clock.wall_ms() == machine.wall_ms() - ahead_s * 1000


async def test_a_known_difference_stays_while_it_explains_the_answers(machine: ManualClock, clock: OracleClock) -> None:
    """So that the time of day does not go back and forth with the time that answers take."""
    clock.note(START_MS, START_MS - 60_000)
    for took_s in (5, 0, 3):
        asked_ms = machine.wall_ms()
        await machine.advance(took_s)
        clock.note(asked_ms, asked_ms - 60_000 + took_s * 500)
        assert clock.ahead_s == pytest.approx(60)


async def test_a_machine_whose_clock_is_set_is_found_out_at_once(machine: ManualClock, clock: OracleClock) -> None:
    machine.suspend(difference_max_s)
    assert clock.is_right() and clock.problem() is None
    machine.suspend(86_400 - difference_max_s)
    problem = clock.problem()
    assert problem is not None and not clock.is_right()
    assert (problem.code, problem.stops_work) == ("clock-differs", False)
    assert "86400 s ahead of that of the control plane oracle" in problem.text
    assert clock.wall_ms() == START_MS != machine.wall_ms()
    machine.suspend(-2 * 86_400)
    problem = clock.problem()
    assert problem is not None and "86400 s behind that of" in problem.text
    clock.note(machine.wall_ms(), machine.wall_ms())
    assert clock.is_right() and clock.problem() is None and clock.wall_ms() == machine.wall_ms()
