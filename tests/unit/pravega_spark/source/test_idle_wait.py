"""Tests that an idle source waits in front of a watch of its stores, and looks when they tell something."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pravega_spark.source import idle_wait
from pravega_spark.source.idle_pause import pause_max_s
from pravega_spark.source.idle_wait import IdleWait

START = {"streams": 1}
TAILS = {"s/t": {0: 10, 1: 20}, "s/u": {0: 5}}
WATCHED = {"s/t/0.#epoch.0": 10, "s/t/1.#epoch.0": 20, "s/u/0.#epoch.0": 5}
LONG_S = 600.0


class Watch:
    """Keeps what it is asked for, and tells what it is set to tell; the clock moves by each wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.can_begin = True
        self.tells_after_s: float | None = None
        self.watched: list[Mapping[str, int]] = []
        self.waits_s: list[float] = []
        self.slept_s: list[float] = []

    def open_watch(self) -> Watch:
        return self

    def begin(self, offsets: Mapping[str, int]) -> bool:
        self.watched.append(offsets)
        return self.can_begin

    def wait(self, wait_s: float) -> bool:
        is_told = self.tells_after_s is not None and self.tells_after_s < wait_s
        self.waits_s.append(wait_s)
        self.now_s += self.tells_after_s if is_told and self.tells_after_s is not None else wait_s
        return is_told

    def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        self.now_s += delay_s


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    monkeypatch.setattr(idle_wait, "worker_gateway", lambda _: made)
    return made


@pytest.fixture
def idle(watch: Watch) -> IdleWait:
    """One that has been idle for long."""
    made = IdleWait("tcp://none:1", lambda: watch.now_s, watch.sleep)
    made.looked(START, watch.now_s, is_found=False)
    watch.now_s = LONG_S
    made.looked(START, watch.now_s, is_found=False)
    return made


def test_the_ends_of_all_segments_are_watched(watch: Watch, idle: IdleWait) -> None:
    idle.wait(START, TAILS)
    assert watch.watched == [WATCHED]
    assert watch.slept_s == []
    assert watch.waits_s == [pytest.approx(0.2)]


def test_what_comes_ends_the_wait(watch: Watch, idle: IdleWait) -> None:
    watch.tells_after_s = 0.01
    idle.wait(START, TAILS)
    assert watch.now_s == pytest.approx(LONG_S + 0.01)


def test_looks_behind_a_watch_are_put_off_by_more(watch: Watch, idle: IdleWait) -> None:
    idle.wait(START, TAILS)
    idle.looked(START, watch.now_s, is_found=False)
    idle.wait(START, TAILS)
    assert watch.waits_s[1:] == [pytest.approx(pause_max_s)]


def test_a_watch_that_told_nothing_true_is_followed_by_a_pause(watch: Watch, idle: IdleWait) -> None:
    """A look that finds nothing, right after each tale, would be made thousands of times a second."""
    watch.tells_after_s = 0.0
    for _ in range(10):
        idle.wait(START, TAILS)
        idle.looked(START, watch.now_s, is_found=False)
    assert len(watch.waits_s) == len(watch.slept_s) == 5
    assert watch.now_s > LONG_S + 5 * 0.2


def test_a_watch_is_trusted_again_once_it_told_the_truth(watch: Watch, idle: IdleWait) -> None:
    watch.tells_after_s = 0.0
    idle.wait(START, TAILS)
    idle.looked(START, watch.now_s, is_found=True)
    for _ in range(2):
        idle.looked({"streams": 2}, watch.now_s, is_found=False)
        watch.now_s += LONG_S
    idle.looked({"streams": 2}, watch.now_s, is_found=False)
    idle.wait({"streams": 2}, TAILS)
    assert len(watch.waits_s) == 2
    assert watch.slept_s == []


@pytest.mark.parametrize("tails", [None, TAILS])
def test_without_a_watch_it_sleeps(watch: Watch, idle: IdleWait, tails: Mapping[str, Mapping[int, int]] | None) -> None:
    watch.can_begin = False
    idle.wait(START, tails)
    assert watch.slept_s == [pytest.approx(0.2)]
    assert watch.waits_s == []
    idle.looked(START, watch.now_s, is_found=False)
    idle.wait(START, tails)
    assert watch.slept_s == [pytest.approx(0.2)] * 2


def test_a_short_pause_is_slept_through(watch: Watch) -> None:
    idle = IdleWait("tcp://none:1", lambda: watch.now_s, watch.sleep)
    idle.looked(START, watch.now_s, is_found=False)
    watch.now_s = 0.2
    idle.looked(START, watch.now_s, is_found=False)
    idle.wait(START, TAILS)
    assert watch.slept_s == [pytest.approx(0.01)]
    assert watch.watched == []
