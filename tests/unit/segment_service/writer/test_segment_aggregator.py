"""The aggregator's decisions, one by one."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.segment_storage import StorageState, write_bytes_max
from segment_service.writer.ack_calculator import AckCalculator
from segment_service.writer.segment_aggregator import (
    Deletion,
    Merging,
    Reconcile,
    Sealing,
    SegmentAggregator,
    Skip,
    Source,
    Step,
    Truncation,
    Write,
)


def state(length: int, start: int = 0, *, is_sealed: bool = False) -> StorageState:
    return StorageState(7, start, length, is_sealed)


def aggregator(*appends: tuple[int, int, int], stored: StorageState | None = None) -> SegmentAggregator:
    """With appends (sequence, offset, length); ``stored`` as Tier 2 answered."""
    made = SegmentAggregator(7, is_new=False)
    made.reconciled(stored)
    for sequence, offset, length in appends:
        made.append(sequence, offset, length, 0.0, 0)
    return made


def next_step(one: SegmentAggregator, start_offset: int = 0) -> Step | None:
    one.settle()
    return one.next_step(start_offset)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("appends", "stored", "start_offset", "wanted"),
    [
        ([], None, 0, None),
        ([(1, 0, 10)], None, 0, Write(0, 10, 1)),
        ([(1, 0, 10), (2, 10, 5)], None, 0, Write(0, 15, 2)),
        ([(1, 0, 10), (2, 10, 5)], state(10), 0, Write(10, 15, 2)),
        ([(1, 0, 10), (2, 10, 5)], state(12), 0, Write(12, 15, 2)),
        ([(1, 0, 10), (2, 10, 5)], state(15), 0, None),
        ([(1, 0, 10)], state(30), 0, None),
        ([(1, 0, 10), (2, 10, 5)], None, 4, Skip(4)),
        ([(1, 0, 10), (2, 10, 5)], state(4, 4), 4, Write(4, 15, 2)),
        ([(1, 0, 10), (2, 10, 5)], None, 99, Skip(15)),
        ([(n, n * MIB, MIB) for n in range(40)], None, 0, Write(0, write_bytes_max, 15)),
        ([(n, 3 * n * MIB, 3 * MIB) for n in range(9)], None, 0, Write(0, 15 * MIB, 4)),
        ([(n, 3 * n * MIB, 3 * MIB) for n in range(9)], state(MIB), 0, Write(MIB, 15 * MIB, 4)),
        ([(1, 0, 10), (2, 10, 20 * MIB)], None, 0, Write(0, 10, 1)),
        ([(1, 0, 20 * MIB), (2, 20 * MIB, 10)], None, 0, Write(0, write_bytes_max, 1)),
        ([(n, n * MIB, MIB) for n in range(40)], state(39 * MIB + 1), 0, Write(39 * MIB + 1, 40 * MIB, 39)),
    ],
)
def test_appends(
    appends: list[tuple[int, int, int]], stored: StorageState | None, start_offset: int, wanted: Step | None
) -> None:
    assert next_step(aggregator(*appends, stored=stored), start_offset) == wanted


def test_first_sight_and_every_failure_ask_tier_2() -> None:
    one = SegmentAggregator(7, is_new=False)
    one.append(1, 0, 10, 0.0, 0)
    assert next_step(one) == Reconcile()
    one.reconciled(None)
    assert next_step(one) == Write(0, 10, 1)
    one.uncertain()
    assert next_step(one) == Reconcile()
    one.reconciled(state(10))
    assert next_step(one) is None
    new = SegmentAggregator(7, is_new=True)
    new.append(1, 0, 10, 0.0, 0)
    assert next_step(new) == Write(0, 10, 1)


def test_bytes_that_neither_tier_2_nor_the_log_has_are_damage() -> None:
    with pytest.raises(DataCorruption, match="Tier 2 ends at 5, the log begins at 10"):
        next_step(aggregator((3, 10, 5), stored=state(5)))


def test_seal_and_truncation_follow_the_data() -> None:
    one = aggregator((1, 0, 10))
    one.truncate(2, 4, 0.0, 0)
    one.seal(3, 0.0, 0)
    assert next_step(one) == Write(0, 10, 1)
    one.written(10)
    truncation = next_step(one)
    assert truncation == Truncation(2, 0.0, 0, 4)
    one.finished(truncation)
    assert one.stored == state(10, 4)
    sealing = next_step(one)
    assert isinstance(sealing, Sealing)
    one.finished(sealing)
    assert one.stored == state(10, 4, is_sealed=True)
    assert one.is_idle


def test_what_tier_2_has_already_is_left_out() -> None:
    one = aggregator((1, 0, 10), stored=state(10, 6, is_sealed=True))
    one.truncate(2, 0, 0.0, 0)
    one.seal(3, 0.0, 0)
    assert next_step(one) is None
    assert one.is_idle


def test_a_truncation_that_tier_2_has_already_is_a_step_that_makes_it_stay() -> None:
    one = aggregator((1, 0, 10), stored=state(10, 6))
    one.truncate(2, 4, 0.0, 0)
    truncation = next_step(one)
    assert truncation == Truncation(2, 0.0, 0, 4)
    one.finished(truncation)
    assert one.stored == state(10, 6)
    assert one.is_idle


def merging(sequence: int, offset: int, length: int) -> Merging:
    return Merging(sequence, 0.0, 0, 8, offset, length)


def test_a_source_that_is_only_cached_becomes_bytes_of_the_target() -> None:
    source = SegmentAggregator(8, is_new=True)
    source.append(2, 0, 5, 0.0, 0)
    source.seal(4, 0.0, 0)
    target = aggregator((3, 0, 10))
    target.merge(merging(5, 10, 5), source)
    target.append(6, 15, 1, 0.0, 0)
    assert target.first_sequence == 2, "the source's append waits here now"
    assert next_step(target) == Write(0, 16, 6)
    target.written(12)
    target.settle()
    assert target.first_sequence == 2
    target.written(16)
    target.settle()
    assert list(target.ended) == [(2, Source(7, 8, in_storage=False, sequence=5))]
    assert target.first_sequence == 2, "until the container was notified"


@pytest.mark.parametrize("reason", ["unknown", "stored", "busy"])
def test_any_other_source_is_moved(reason: str) -> None:
    source = SegmentAggregator(8, is_new=reason != "unknown")
    source.append(2, 0, 5, 0.0, 0)
    if reason == "stored":
        source.written(2)
    source.is_busy = reason == "busy"
    target = aggregator((3, 0, 10))
    wanted = merging(5, 10, 5)
    target.merge(wanted, source)
    target.append(6, 15, 1, 0.0, 0)
    assert target.merging_count == 1
    assert next_step(target) == Write(0, 10, 3)
    target.written(10)
    assert next_step(target) is wanted
    assert next_step(target, 12) is wanted, "a skip stops at a merge"
    target.finished(wanted)
    assert target.stored == state(15)
    assert next_step(target) == Write(15, 16, 6)


def test_a_merge_may_turn_out_to_be_one_of_cached_bytes() -> None:
    source = SegmentAggregator(8, is_new=False)
    source.append(2, 0, 5, 0.0, 0)
    target = aggregator((3, 0, 10))
    waiting = merging(5, 10, 5)
    target.merge(waiting, source)
    source.reconciled(None)
    target.join(waiting, source)
    assert target.merging_count == 0
    assert target.first_sequence == 2
    assert next_step(target) == Write(0, 15, 5)


def test_a_deletion_replaces_everything_and_keeps_its_sources() -> None:
    cached, moved = SegmentAggregator(8, is_new=True), SegmentAggregator(9, is_new=False)
    cached.append(2, 0, 5, 0.0, 0)
    one = aggregator((3, 0, 10), stored=state(4))
    one.merge(merging(5, 10, 5), cached)
    one.merge(Merging(6, 0.0, 0, 9, 15, 5), moved)
    one.delete(7, 0.0, 0)
    deletion = next_step(one)
    assert isinstance(deletion, Deletion)
    assert [source.source_id for source in deletion.sources] == [8, 9]
    assert one.first_sequence == 2
    assert one.pending_bytes == one.merging_count == 0
    one.finished(deletion)
    assert one.is_idle
    assert one.stored is None


def test_a_step_that_a_deletion_overtook_does_no_harm() -> None:
    one = aggregator((1, 0, 10))
    waiting = merging(2, 10, 5)
    one.merge(waiting, SegmentAggregator(8, is_new=False))
    one.written(10)
    assert next_step(one) is waiting
    one.delete(3, 0.0, 0)
    one.finished(waiting)
    assert isinstance(next_step(one), Deletion)


def test_acknowledgements_stop_below_what_waits_and_never_go_back() -> None:
    acks = AckCalculator()
    for number in range(1, 11):
        acks.read(number)
    assert acks.highest(None) == 10
    assert acks.highest(4) == 3
    acks.acknowledged = 3
    assert acks.highest(4) == 3
    with pytest.raises(InvariantViolation):
        acks.highest(3)
    with pytest.raises(InvariantViolation):
        acks.read(10)
