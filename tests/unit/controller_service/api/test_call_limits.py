"""What is counted of calls that are refused, and of those that the reserve of operators takes."""

from __future__ import annotations

import pytest

from controller_service.api.grpc.call_limits import (
    CallCounts,
    operators_calls_max,
    operators_calls_per_peer_max,
)
from controller_service.api.grpc.method_access import OPERATORS_METHODS
from pravega_common.errors import Throttled

OPERATORS_METHOD = sorted(OPERATORS_METHODS)[0]


def refused_in_all(counts: CallCounts) -> int:
    return counts.calls.refused_total + counts.operators.refused_total


def test_a_call_that_the_reserve_takes_is_not_counted_as_refused() -> None:
    counts = CallCounts.of(8, 1)
    assert counts.enter("a", "/any") is counts.calls
    for _ in range(3):
        assert counts.enter("a", OPERATORS_METHOD) is counts.operators
    assert refused_in_all(counts) == 0


@pytest.mark.parametrize("method", ["/any", OPERATORS_METHOD])
def test_a_refused_call_is_counted_once(method: str) -> None:
    counts = CallCounts.of(8, 1)
    counts.enter("a", "/any")
    for _ in range(operators_calls_per_peer_max):
        counts.enter("a", OPERATORS_METHOD)
    for number in range(1, 4):
        with pytest.raises(Throttled, match="1 calls of a are in progress, the limit of a host"):
            counts.enter("a", method)
        assert refused_in_all(counts) == number
    counts.enter("b", method)


def test_the_reserve_ends() -> None:
    counts = CallCounts.of(1, 1)
    counts.enter("a", OPERATORS_METHOD)
    for number in range(operators_calls_max):
        assert counts.enter(f"host {number}", OPERATORS_METHOD) is counts.operators
    with pytest.raises(Throttled, match="1 calls are in progress, the limit of all"):
        counts.enter("b", OPERATORS_METHOD)
    assert refused_in_all(counts) == 1
