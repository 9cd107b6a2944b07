"""Requests that wait for look-ups, in order, and what becomes of them."""

from __future__ import annotations

from pravega_common.errors import PravegaError
from segment_service.durable_log.parked_requests import ParkedRequests, Then
from segment_service.durable_log.requests import AnyRequest, MergeRequest, SealRequest


class Parking:
    """Parked requests, and what became of those that are not parked any more."""

    def __init__(self) -> None:
        self.gone_on: list[AnyRequest] = []
        self.refused: list[AnyRequest] = []
        self.looked_up: dict[str, Then] = {}
        """What to call when the look-up of a name has ended."""
        self.parked = ParkedRequests(self.gone_on.extend, self._refuse)

    def _refuse(self, request: AnyRequest, error: PravegaError) -> None:
        self.refused.append(request)

    def park(self, request: AnyRequest, name: str) -> AnyRequest:
        self.parked.park(request, name, lambda then: self.looked_up.__setitem__(name, then))
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
