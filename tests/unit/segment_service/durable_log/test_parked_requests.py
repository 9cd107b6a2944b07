"""Requests that wait for look-ups, in order, and what becomes of them."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption, PravegaError, Unavailable
from segment_service.durable_log.metadata_updater import Need
from segment_service.durable_log.parked_requests import ParkedRequests, Then
from segment_service.durable_log.requests import AnyRequest, MergeRequest, SealRequest, names_in


class Parking:
    """Parked requests, and what became of those that are not parked any more."""

    def __init__(self) -> None:
        self.gone_on: list[AnyRequest] = []
        self.refused: list[AnyRequest] = []
        self.looked_up: dict[str, Then] = {}
        """What to call when the look-up of a name has ended."""
        self.inactive: set[str] = set()
        """The names of segments that are not in memory."""
        self.parked = ParkedRequests(self.gone_on.extend, self._refuse, self._needs)

    def _refuse(self, request: AnyRequest, error: PravegaError) -> None:
        self.refused.append(request)

    def _needs(self, request: AnyRequest) -> set[Need]:
        return {name for name in names_in(request) if name in self.inactive}

    def park(self, request: AnyRequest, name: str) -> AnyRequest:
        self.inactive.add(name)
        self.parked.park(request, name, {name}, lambda then: self.looked_up.__setitem__(name, then))
        return request

    def follow(self, request: AnyRequest) -> AnyRequest:
        assert self.parked.follow(request)
        return request


def test_one_more_that_waits_costs_nothing_for_those_before_it() -> None:
    parking = Parking()
    waiting = [parking.park(SealRequest("s"), "s")]
    group = parking.parked.names["s"]
    for number in range(100):
        waiting.append(parking.follow(SealRequest("s")))
        waiting.append(parking.follow(MergeRequest("s", f"source-{number}")))
        assert parking.parked.names["s"] is group
        assert parking.parked.names[f"source-{number}"] is group
    parking.looked_up["s"](None)
    assert parking.gone_on == waiting
    assert not parking.parked.names


def test_a_large_group_takes_in_a_small_one() -> None:
    parking = Parking()
    few = [parking.park(SealRequest("few"), "few")]
    many = [parking.park(SealRequest("many"), "many"), *(parking.follow(SealRequest("many")) for _ in range(10))]
    group = parking.parked.names["many"]
    joined = parking.follow(MergeRequest("few", "many"))
    assert parking.parked.names == {"few": group, "many": group}
    parking.looked_up["few"](None)
    assert [one for one in parking.gone_on if one not in many] == [*few, joined]
    assert [one for one in parking.gone_on if one not in few] == [*many, joined]
    parking.looked_up["many"](None)  # nobody waits for it any more
    assert len(parking.gone_on) == 13


@pytest.mark.parametrize("error", [DataCorruption("a block is damaged"), Unavailable("Tier 2 is away")])
def test_a_look_up_that_fails_is_the_error_of_those_that_need_it(error: PravegaError) -> None:
    parking = Parking()
    merge = parking.park(MergeRequest("target", "source"), "source")
    same = parking.follow(SealRequest("source"))
    parking.inactive.add("another")
    other = parking.follow(MergeRequest("target", "another"))
    behind = parking.follow(SealRequest("target"))
    parking.looked_up["source"](error)
    if isinstance(error, DataCorruption):
        assert (parking.refused, parking.gone_on) == ([merge, same], [other, behind])
    else:  # all that need Tier 2 at once: no one is to wait for it after the other
        assert (parking.refused, parking.gone_on) == ([merge, same, other], [behind])
    assert not parking.parked.names


def test_the_one_that_asked_is_refused_in_any_case() -> None:
    """Else it would be tried again without end."""
    parking = Parking()
    asked = parking.park(SealRequest("s"), "s")
    parking.inactive.clear()
    parking.looked_up["s"](Unavailable("Tier 2 is away"))
    assert (parking.refused, parking.gone_on) == ([asked], [])


def test_an_error_that_comes_late_is_not_that_of_one_that_went_on() -> None:
    parking = Parking()
    parking.park(SealRequest("target"), "target")
    asked = parking.park(MergeRequest("source", "other"), "source")
    parking.follow(MergeRequest("target", "source"))
    parking.looked_up["target"](None)
    assert asked in parking.gone_on
    late = parking.looked_up["source"]
    again = parking.park(SealRequest("source"), "source")
    late(Unavailable("Tier 2 is away"))
    assert not parking.refused
    parking.looked_up["source"](Unavailable("Tier 2 is away"))
    assert parking.refused == [again]
