"""A check has a time, after which its finding says how far it came; problems of a cluster are joined."""

from __future__ import annotations

import threading
import time

import pytest

from pravega_common.errors import AccessDenied, Unavailable
from pravega_common.model.cluster_health import ClusterProblem
from pravega_spark.commands.controller_checks import merged
from pravega_spark.commands.findings import AS_OPERATOR, Finding, RunningCheck, Tell

time_max_s = 0.2
LATE = Finding("round trip", False, "", "look there")


def test_a_check_that_ends_has_its_finding() -> None:
    running = RunningCheck.of("a", "do that", lambda: "well")
    assert running.finding() == Finding("a", True, "well") and not running.is_late


def test_a_check_that_fails_has_its_remedy() -> None:
    def look() -> str:
        raise Unavailable("nobody is there")

    assert RunningCheck.of("a", "do that", look).finding() == Finding("a", False, "nobody is there", "do that")


def test_a_check_that_the_user_may_not_make_is_no_failure() -> None:
    def look() -> str:
        raise AccessDenied("user reader has no READ on prn::/")

    found = RunningCheck.of("a", "do that", look).finding()
    detail = "not permitted to this user: user reader has no READ on prn::/"
    assert found == Finding("a", None, detail, AS_OPERATOR, is_unknown=True)


def test_a_check_that_does_not_end_says_where_it_stands() -> None:
    ended = threading.Event()

    def look(tell: Tell) -> Finding:
        tell("writing")
        ended.wait()
        return LATE

    begun_s = time.monotonic()
    running = RunningCheck(look, LATE, time_max_s)
    assert running.finding() == Finding("round trip", False, "no end within 0.2 s, at: writing", "look there")
    assert running.is_late and time.monotonic() - begun_s < 10 * time_max_s
    ended.set()


def test_checks_run_beside_one_another() -> None:
    ended = threading.Event()
    begun_s = time.monotonic()
    late = [RunningCheck(lambda _: Finding("b", ended.wait(), ""), LATE, time_max_s) for _ in range(20)]
    assert [one.finding().is_ok for one in late] == [False] * 20
    assert time.monotonic() - begun_s < 10 * time_max_s
    ended.set()


def test_an_error_that_nobody_foresaw_is_not_hidden() -> None:
    def look() -> str:
        raise KeyError("a defect")

    with pytest.raises(KeyError, match="a defect"):
        RunningCheck.of("a", "", look).finding()


def test_what_all_controllers_say_is_said_once() -> None:
    everybody = ClusterProblem("tier2-failing", "store a: all calls fail", "bring it back", True)
    damaged = ClusterProblem("segments-damaged", "store a: 1 segments", "restore them", False)
    own = ClusterProblem("lease-lost", "the lease ran out 5 s ago", "look at Redis", True)
    found = merged({"h:1": (damaged, everybody), "h:2": (everybody, damaged, own)})
    assert [(one.code, one.text) for one in found] == [
        ("tier2-failing", "store a: all calls fail"),
        ("lease-lost", "controller h:2: the lease ran out 5 s ago"),
        ("segments-damaged", "store a: 1 segments"),
    ]
    assert merged({"h:2": (own,)}) == [own]
