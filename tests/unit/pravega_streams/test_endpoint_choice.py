"""Checks which controller a client calls next."""

from __future__ import annotations

import pytest

from pravega_streams.controller.endpoint_choice import EndpointChoice, avoid_time_min_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_endpoints_take_turns() -> None:
    choice = EndpointChoice(3, Clock())
    assert [choice.next() for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_an_endpoint_that_failed_is_avoided_for_a_while() -> None:
    clock = Clock()
    choice = EndpointChoice(2, clock)
    choice.failed(0)
    assert {choice.next() for _ in range(10)} == {1}
    clock.now_s += avoid_time_min_s
    assert {choice.next() for _ in range(2)} == {0, 1}


def test_an_endpoint_that_fails_again_is_avoided_twice_as_long() -> None:
    clock = Clock()
    choice = EndpointChoice(2, clock)
    choice.failed(0)
    clock.now_s += avoid_time_min_s
    choice.failed(0)
    clock.now_s += avoid_time_min_s
    assert {choice.next() for _ in range(10)} == {1}
    choice.answered(0)
    assert {choice.next() for _ in range(2)} == {0, 1}


def test_without_a_better_one_the_one_avoided_shortest_is_called() -> None:
    clock = Clock()
    choice = EndpointChoice(2, clock)
    choice.failed(1)
    clock.now_s += 1
    choice.failed(0)
    assert choice.next() == 1


@pytest.mark.timeout(10)
def test_a_lock_that_an_interrupt_left_held_does_not_stop_its_thread() -> None:
    """Python 3.14 looks for signals between the entry of a ``with`` and its body."""
    choice = EndpointChoice(2, lambda: 0.0)
    choice._lock.acquire()
    assert choice.next() == 0
