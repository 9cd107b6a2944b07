"""The figures of a store travel with its lease; older and newer versions understand each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.services.cluster.codec import payload_to_json
from pravega_common.services.cluster.registry import Member, failed_containers_max, problems_max
from pravega_common.services.cluster.store_load import StoreLoad
from pravega_common.services.problems import Problem

LOAD = StoreLoad(7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
SLOW = Problem("slow", "it is slow", "wait", stops_work=False)


def test_a_lease_with_figures() -> None:
    member = Member("host", 1, "run", load=LOAD)
    assert Member.from_payload(member.to_payload()) == member


def test_an_older_store_sends_none() -> None:
    payload = Member("host", 1, "run").to_payload()
    assert "load" not in payload
    assert Member.from_payload(payload).load is None


def test_what_a_newer_store_adds_is_passed_over() -> None:
    assert StoreLoad.from_payload({**LOAD.to_payload(), "colour": "red"}) == LOAD


def test_a_lease_with_problems() -> None:
    member = Member("host", 1, "run", problems=(SLOW,))
    payload = member.to_payload()
    payload["problems"][0]["colour"] = "red"
    assert Member.from_payload(payload) == member
    assert "problems" not in Member("host", 1).to_payload()


def test_the_failed_containers_of_a_store_fit_its_lease() -> None:
    """Without its lease it would be taken for dead, and never be told to start them again."""
    failed = tuple((number, 1 << 40) for number in range(10_000))
    reasons = tuple((number, "x" * 500) for number, _ in failed)
    member = Member("host", 1, "run", failed, reasons, problems=(SLOW,) * problems_max)
    sent = Member.from_payload(json.loads(payload_to_json(member.to_payload())))
    assert sent.failed_containers == failed[:failed_containers_max]


def test_the_problems_of_a_lease_have_a_limit() -> None:
    sent = Member("host", 1, problems=(SLOW,) * (problems_max + 1)).to_payload()
    assert len(sent["problems"]) == problems_max


@pytest.mark.parametrize("wrong", [17, [17], [{"code": "slow"}], None])
def test_problems_that_are_none(wrong: Any) -> None:
    with pytest.raises(DataCorruption):
        Member.from_payload({**Member("host", 1).to_payload(), "problems": wrong})


@pytest.mark.parametrize("wrong", [None, -1, 1.5, "1", True])
def test_a_figure_that_is_no_count(wrong: Any) -> None:
    payload = {**Member("host", 1).to_payload(), "load": {**LOAD.to_payload(), "read_bytes": wrong}}
    with pytest.raises(DataCorruption, match="read_bytes"):
        Member.from_payload(payload)


@pytest.mark.parametrize("wrong", [17, "load", None])
def test_figures_that_are_none(wrong: Any) -> None:
    with pytest.raises(DataCorruption):
        Member.from_payload({**Member("host", 1).to_payload(), "load": wrong})
