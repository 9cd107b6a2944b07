"""Cuts with segments not reached yet: followed through the epochs, with histories and readers made at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.policies.retention import Relation, compare
from controller_service.service import Controller
from controller_service.store.cut_validity import GapWalk, is_valid_in
from controller_service.store.epochs import initial_epoch, next_epoch, plan_scale
from controller_service.store.history import place_in
from controller_service.store.records import EpochRecord, SegmentRecord, StreamState
from controller_service.store.stream_cuts import (
    CutPlacement,
    PlacedCut,
    SegmentsBetween,
    epoch_bounds,
    is_at_or_after,
    is_valid,
)
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.support.eventually import eventually

S, T = "scope", "stream"
SLICES = 8
S1, S2, S3, S4, S5 = 1 << 32 | 1, 1 << 32 | 2, 2 << 32 | 3, 3 << 32 | 4, 3 << 32 | 5
SCALES: list[tuple[list[int], list[tuple[float, float]]]] = [
    ([0], [(0.0, 0.5), (0.5, 1.0)]),
    ([S1, S2], [(0.0, 1.0)]),
    ([S3], [(0.0, 0.5), (0.5, 1.0)]),
]
"""Segment 0 becomes S1 and S2, which become S3, which becomes S4 and S5."""


def random_history(chance: random.Random, scales: int) -> list[EpochRecord]:
    """Splits and merges of neighbours, with edges at multiples of a slice."""
    epochs = [initial_epoch(0, chance.choice([1, 2, 4]), 0)]
    for number in range(scales):
        segments = sorted(epochs[-1].segments, key=lambda item: item.key_start)
        first = chance.randrange(len(segments))
        replaced = segments[first : first + chance.choice([1, 1, 2, 3])]
        low, high = int(replaced[0].key_start * SLICES), int(replaced[-1].key_end * SLICES)
        inner = sorted(chance.sample(range(low + 1, high), chance.randrange(min(3, high - low))))
        edges = [edge / SLICES for edge in [low, *inner, high]]
        ids = [segment.segment_id for segment in replaced]
        plan = plan_scale(epochs[-1], ids, list(itertools.pairwise(edges)), 1, number)
        epochs.append(next_epoch(epochs[-1], plan))
    return epochs


def placed_in(epochs: Sequence[EpochRecord], cut: Mapping[int, int]) -> PlacedCut:
    low, high = epoch_bounds(cut)
    placement = CutPlacement(cut)
    for epoch in reversed(epochs[low : high + 1]):
        placement.look_at(epoch)
    return placement.placed()


def is_consistent(epochs: Sequence[EpochRecord], placed: PlacedCut) -> bool:
    """By a walk through all epochs of the cut."""
    low, high = epoch_bounds(placed.cut)
    walk = GapWalk(placed)
    for epoch in epochs[low : high + 1]:
        walk.passed_in(epoch)
    return walk.is_consistent


class Reading:
    """A reader that reads segments in any order that a history allows, each to its end."""

    def __init__(self, chance: random.Random, epochs: Sequence[EpochRecord]) -> None:
        self._chance = chance
        self._epochs = epochs
        self.every = {segment.segment_id: segment for epoch in epochs for segment in epoch.segments}
        self.done: set[int] = set()

    def _before(self, segment: SegmentRecord) -> set[int]:
        return {other.segment_id for other in self.every.values() if precedes(other, segment)}

    def _open(self) -> list[SegmentRecord]:
        return [
            item for item in self.every.values() if item.segment_id not in self.done and self._before(item) <= self.done
        ]

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            ends = [item for item in self._open() if any(precedes(item, other) for other in self.every.values())]
            if ends:
                self.done.add(self._chance.choice(ends).segment_id)

    def position(self) -> PlacedCut:
        """With the segments that it waits for as not reached yet."""
        reading = self._open()
        unread = [item for item in self.every.values() if item.segment_id not in self.done and item not in reading]
        waiting = [
            item for item in unread if self._before(item) & self.done and is_next(item, unread, self.done, self.every)
        ]
        cut = {item.segment_id: 5 for item in reading} | {item.segment_id: -1 for item in waiting}
        return placed_in(self._epochs, cut)


@given(st.integers(0, 1 << 32), st.integers(0, 7), st.integers(0, 20))
def test_where_a_reader_stands_is_always_a_valid_cut(seed: int, scales: int, steps: int) -> None:
    chance = random.Random(seed)
    epochs = random_history(chance, scales)
    reading = Reading(chance, epochs)
    reading.go_on(steps)
    placed = reading.position()
    assert is_valid(placed) and is_consistent(epochs, placed)


@given(st.integers(0, 1 << 32), st.integers(0, 7), st.integers(0, 9), st.integers(0, 9))
def test_a_reader_goes_on_behind_its_earlier_places(seed: int, scales: int, before: int, steps: int) -> None:
    """Also where it waits for segments; what it reads on the way lies between the two places."""
    chance = random.Random(seed)
    epochs = random_history(chance, scales)
    reading = Reading(chance, epochs)
    reading.go_on(before)
    first, done = reading.position(), set(reading.done)
    reading.go_on(steps)
    last = reading.position()
    has_moved = reading.done != done
    assert is_at_or_after(last, first) and is_at_or_after(first, last) is not has_moved
    assert compare(last, first) is Relation.EQUAL_OR_AFTER
    assert compare(first, last) is (Relation.BEFORE if has_moved else Relation.EQUAL_OR_AFTER)
    walk = SegmentsBetween(first, last)
    between = {
        segment.segment_id
        for epoch in epochs[first.first_epoch : last.last_epoch + 1]
        for segment in walk.new_in(epoch)
    }
    reached = {identifier for place in (first, last) for identifier, offset in place.cut.items() if offset >= 0}
    assert (reading.done - done) | reached <= between
    assert not between & done


def precedes(one: SegmentRecord, other: SegmentRecord) -> bool:
    return one.segment_id < other.segment_id and one.overlaps(other)


def is_next(
    item: SegmentRecord, unread: Sequence[SegmentRecord], done: set[int], every: Mapping[int, SegmentRecord]
) -> bool:
    """Whether a segment is the next one of some keys that nobody reads."""
    for slot in range(int(item.key_start * SLICES), int(item.key_end * SLICES)):
        there = [other for other in every.values() if other.key_start * SLICES <= slot < other.key_end * SLICES]
        if min(other.segment_id for other in there if other.segment_id not in done) == item.segment_id:
            return True
    return False


@given(st.integers(0, 1 << 32), st.integers(1, 7))
def test_a_segment_read_and_not_reached_is_found(seed: int, scales: int) -> None:
    """Against every segment at every slice of the keys, for cuts made at random."""
    chance = random.Random(seed)
    epochs = random_history(chance, scales)
    chosen = [chance.choice(epochs) for _ in range(SLICES)]
    segments = {at(chosen[slot], slot).segment_id: at(chosen[slot], slot) for slot in range(SLICES)}
    cut = {identifier: chance.choice([5, 5, -1]) for identifier in segments}
    placed = placed_in(epochs, cut)
    if not is_valid(placed):
        return
    parts: dict[int, int] = {}
    gaps: set[int] = set()
    for slot in range(SLICES):
        there = [item for item in segments.values() if item.key_start * SLICES <= slot < item.key_end * SLICES]
        read = [item.segment_id for item in there if cut[item.segment_id] >= 0]
        if there:
            parts[slot] = min(read or [item.segment_id for item in there])
        if there and not read:
            gaps.add(slot)
    low, high = epoch_bounds(cut)
    wrong = False
    for segment in {item for epoch in epochs[low : high + 1] for item in epoch.segments}:
        slots = range(int(segment.key_start * SLICES), int(segment.key_end * SLICES))
        is_read = any(slot in gaps and segment.segment_id < parts[slot] for slot in slots)
        is_ahead = any(parts.get(slot, segment.segment_id) < segment.segment_id for slot in slots)
        wrong = wrong or (is_read and is_ahead and segment.segment_id not in cut)
    assert is_consistent(epochs, placed) is not wrong


def at(epoch: EpochRecord, slot: int) -> SegmentRecord:
    return next(item for item in epoch.segments if item.key_start * SLICES <= slot < item.key_end * SLICES)


@pytest.mark.parametrize(
    ("cut", "valid"),
    [
        ({S1: 10, S3: -1}, True),
        ({S4: 10, S5: -1}, True),
        ({S1: 10, S5: -1}, False),
        ({S2: 0, S4: -1}, False),
    ],
)
async def test_a_stream_answers_and_truncates_by_it(controller: Controller, cut: dict[int, int], valid: bool) -> None:
    await controller.store.create_scope(S)
    workflows = controller.parts.workflows
    await workflows.create.create(S, T, StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, 2, 1)))
    for replaced, ranges in SCALES:
        plan = await workflows.scale.start(S, T, replaced, ranges)
        await eventually(partial(is_active_in, controller, plan.new_epoch), "the end of the scale")
    opened = await controller.store.open(S, T)
    assert await is_valid_in(opened, await place_in(opened, cut)) is valid
    if not valid:
        with pytest.raises(InvalidArgument, match="no stream cut"):
            await workflows.truncate.truncate("1", S, T, cut)


async def is_active_in(controller: Controller, epoch: int) -> bool:
    opened = await controller.store.open(S, T)
    return (await opened.current_epoch()).epoch == epoch and await opened.state() is StreamState.ACTIVE
