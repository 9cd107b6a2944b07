"""Checks the decisions of retention, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller_service.policies.retention import (
    BoundFacts,
    Candidates,
    Relation,
    Target,
    TruncationBound,
    candidates,
    compare,
    decide,
    lower_bound,
)
from controller_service.store.epochs import initial_epoch, next_epoch, plan_scale
from controller_service.store.records import EpochRecord, RetentionReference
from controller_service.store.stream_cuts import CutPlacement, PlacedCut, epoch_bounds, is_valid
from pravega_common.model.retention import RetentionPolicy, RetentionType

TIME, SIZE = RetentionType.TIME, RetentionType.SIZE
BEFORE, AFTER, OVERLAPS = Relation.BEFORE, Relation.EQUAL_OR_AFTER, Relation.OVERLAPS

S0, S1 = 0, 1
S2, S3 = 1 << 32 | 2, 1 << 32 | 3
S4 = 2 << 32 | 4


def history() -> list[EpochRecord]:
    """0 and 1; then 0 is split into 2 and 3; then 3 and 1 become 4."""
    first = initial_epoch(0, 2, 0)
    second = next_epoch(first, plan_scale(first, [0], [(0.0, 0.25), (0.25, 0.5)], 1, 10))
    return [first, second, next_epoch(second, plan_scale(second, [S3, S1], [(0.25, 1.0)], 1, 20))]


def placed(cut: Mapping[int, int]) -> PlacedCut:
    low, high = epoch_bounds(cut)
    placement = CutPlacement(cut)
    for epoch in reversed(history()[low : high + 1]):
        placement.look_at(epoch)
    return placement.placed()


@pytest.mark.parametrize(
    ("first", "second", "relation"),
    [
        ({S0: 5, S1: 5}, {S0: 5, S1: 5}, AFTER),
        ({S0: 6, S1: 5}, {S0: 5, S1: 5}, AFTER),
        ({S0: 4, S1: 5}, {S0: 5, S1: 5}, BEFORE),
        ({S0: 4, S1: 6}, {S0: 5, S1: 5}, OVERLAPS),
        ({S0: 99, S1: 5}, {S2: 0, S3: 0, S1: 5}, BEFORE),
        ({S2: 0, S3: 0, S1: 5}, {S0: 99, S1: 5}, AFTER),
        ({S2: 0, S3: 0, S1: 4}, {S0: 99, S1: 5}, OVERLAPS),
        ({S2: 0, S4: 0}, {S0: 9, S1: 9}, AFTER),
        ({S2: 0, S3: 9, S4: -1}, {S2: 0, S4: 3}, BEFORE),
        ({S2: 0, S3: 9, S4: -1}, {S2: 0, S3: 9, S4: -1}, AFTER),
        ({S2: 0, S3: 9, S4: -1}, {S2: 0, S3: 9, S1: 4}, AFTER),
        ({S2: 0, S1: 9, S4: -1}, {S2: 0, S3: 9, S4: -1}, OVERLAPS),
    ],
)
def test_comparison(first: dict[int, int], second: dict[int, int], relation: Relation) -> None:
    assert compare(placed(first), placed(second)) is relation


@pytest.mark.parametrize(
    ("cuts", "bound"),
    [
        ([], {}),
        ([{S0: 5, S1: 7}], {S0: 5, S1: 7}),
        ([{S0: 5, S1: 7}, {S0: 6, S1: 3}], {S0: 5, S1: 3}),
        # The older segment takes precedence over the two that replaced it.
        ([{S0: 5, S1: 7}, {S2: 9, S3: 9, S1: 3}], {S0: 5, S1: 3}),
        ([{S2: 9, S4: 1}, {S0: 5, S1: 7}], {S0: 5, S1: 7}),
        # One waits for 1 before it goes on to 4, the other is in 4: the keys of 3 are not left without an owner.
        ([{S2: 9, S1: 2, S4: -1}, {S2: 1, S4: 8}], {S2: 1, S1: 2, S4: -1}),
        ([{S2: 9, S1: 2, S4: -1}, {S2: 1, S3: 4, S1: 9}], {S2: 1, S3: 4, S1: 2}),
    ],
)
def test_lower_bound(cuts: list[dict[int, int]], bound: dict[int, int]) -> None:
    found = lower_bound([placed(cut) for cut in cuts])
    assert found == bound
    if found:
        assert is_valid(placed(found))
        assert all(compare(placed(cut), placed(found)) is AFTER for cut in cuts)


# Taken at 0, 10, 20, 30 with 0, 100, 200, 300 bytes behind each.
R0, R1, R2, R3 = REFERENCES = [RetentionReference(10 * index, 100 * index) for index in range(4)]
FOREVER = (1 << 63) - 1


@pytest.mark.parametrize(
    ("policy", "now_ms", "minimum", "maximum", "beyond"),
    [
        (RetentionPolicy(TIME, 15, 100), 35, R2, R0, None),
        (RetentionPolicy(TIME, 15, 30), 35, R2, R1, R0),
        (RetentionPolicy(TIME, 15, 15), 35, R2, R2, R2),
        (RetentionPolicy(TIME, 11, 14), 35, R2, R2, R2),  # nothing between the two: the minimum's
        (RetentionPolicy(TIME, 15, 5), 36, R2, R2, R2),  # a maximum below the minimum counts as the minimum
        (RetentionPolicy(TIME, 15, 0), 35, R2, R0, None),  # 0: no maximum was set
        (RetentionPolicy(TIME, 15, FOREVER), 35, R2, R0, None),
        (RetentionPolicy(TIME, 36, 40), 35, None, None, None),
        (RetentionPolicy(TIME, 0, 1), 30, R3, R3, R2),
        (RetentionPolicy(SIZE, 150, 250), 10_000, R1, R1, R0),
        (RetentionPolicy(SIZE, 100, 200), 10_000, R2, R1, R1),
        (RetentionPolicy(SIZE, 300, 0), 10_000, R0, R0, None),
        (RetentionPolicy(SIZE, 301, 400), 10_000, None, None, None),
        (RetentionPolicy(SIZE, 0, 0), 10_000, R3, R0, None),
    ],
)
def test_candidates(
    policy: RetentionPolicy,
    now_ms: int,
    minimum: RetentionReference | None,
    maximum: RetentionReference | None,
    beyond: RetentionReference | None,
) -> None:
    found = candidates(policy, REFERENCES, now_ms)
    assert tuple(value and value[1] for value in (found.minimum, found.maximum, found.beyond)) == (
        minimum,
        maximum,
        beyond,
    )


@pytest.mark.parametrize("kind", [TIME, SIZE])
def test_without_references_nothing_is_decided(kind: RetentionType) -> None:
    policy = RetentionPolicy(kind, 0, 1)
    found = candidates(policy, [], 100)
    assert found == Candidates(None, None, None)
    assert decide(policy, found, None) is None


def test_without_subscribers_the_minimum_is_kept() -> None:
    policy = RetentionPolicy(TIME, 15, 16)
    assert decide(policy, candidates(policy, REFERENCES, 35), None) == R2
    assert decide(policy, candidates(policy, REFERENCES, 14), None) is None


@pytest.mark.parametrize(
    ("minimum", "retained", "relation", "target"),
    [
        (150, 149, BEFORE, R1),
        (150, -5, BEFORE, R1),
        (150, 149, OVERLAPS, R0),
        (301, 100, BEFORE, None),  # less than the minimum was ever recorded
        (150, 150, AFTER, TruncationBound.SUBSCRIBERS),
        (150, 249, AFTER, TruncationBound.SUBSCRIBERS),
        (150, 250, AFTER, R1),
        (150, 100_000, AFTER, R1),
        (260, 260, AFTER, TruncationBound.SUBSCRIBERS),  # the only reference left keeps 300
    ],
)
def test_size_with_subscribers(minimum: int, retained: int, relation: Relation, target: Target) -> None:
    policy = RetentionPolicy(SIZE, minimum, 250)
    found = candidates(policy, REFERENCES, 0)
    assert decide(policy, found, BoundFacts(retained, relation, BEFORE, R0)) == target


@pytest.mark.parametrize(
    ("maximum", "relation", "beyond", "target"),
    [
        (30, BEFORE, AFTER, R2),
        (30, OVERLAPS, AFTER, R1),
        (30, OVERLAPS, OVERLAPS, R0),  # one segment holds the maximum back
        (30, OVERLAPS, BEFORE, R1),
        (0, OVERLAPS, OVERLAPS, R1),
        (30, AFTER, AFTER, TruncationBound.SUBSCRIBERS),
        (30, AFTER, BEFORE, R1),
        (30, AFTER, OVERLAPS, R0),
        (40, AFTER, BEFORE, TruncationBound.SUBSCRIBERS),  # nothing is as old as the maximum
        (0, AFTER, BEFORE, TruncationBound.SUBSCRIBERS),  # no maximum: what is not released stays
    ],
)
def test_time_with_subscribers(maximum: int, relation: Relation, beyond: Relation, target: Target) -> None:
    policy = RetentionPolicy(TIME, 15, maximum)
    facts = BoundFacts(0, relation, beyond, R1)
    assert decide(policy, candidates(policy, REFERENCES, 35), facts) == target
    too_young = replace(policy, minimum=36)
    assert decide(too_young, candidates(too_young, REFERENCES, 35), facts) is None
