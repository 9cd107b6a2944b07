"""Checks which batch took an event, and how long that took."""

from __future__ import annotations

import pytest

from tests.bench.stamps import BatchEnd, batch_time_s, joined, stamp_of, stamped, waits_ms

BATCHES = [BatchEnd(10.0, {0: 5, 1: 0}), BatchEnd(11.0, {0: 5, 1: 3}), BatchEnd(12.5, {0: 9, 1: 3})]


def test_a_stamp_comes_back_from_its_event() -> None:
    event = stamped(1_700_000_000.125, 100)
    assert len(event) == 100
    assert stamp_of(event) == 1_700_000_000.125
    assert stamp_of(bytearray(event[:8])) == 1_700_000_000.125


@pytest.mark.parametrize(
    ("partition", "position", "end_s"),
    [(0, 0, 10.0), (0, 4, 10.0), (0, 5, 12.5), (0, 8, 12.5), (1, 0, 11.0), (1, 2, 11.0)],
)
def test_an_event_belongs_to_the_first_batch_that_ends_behind_it(partition: int, position: int, end_s: float) -> None:
    assert joined([(partition, position, 9.0)], BATCHES) == [(9.0, end_s)]


@pytest.mark.parametrize("event", [(0, 9, 1.0), (1, 3, 1.0), (2, 0, 1.0)])
def test_an_event_that_no_batch_took_is_an_error(event: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match="no batch took the event"):
        joined([event], BATCHES)


def test_a_batch_ends_when_its_trigger_does() -> None:
    progress = {"timestamp": "2026-01-31T12:00:00.250Z", "durationMs": {"triggerExecution": 750, "addBatch": 100}}
    assert batch_time_s(progress) == 1_769_860_801.0


def test_waits_leave_out_the_beginning_and_are_in_order() -> None:
    pairs = [(112.0, 112.5), (100.0, 109.0), (111.0, 112.5), (109.9, 110.0)]
    assert waits_ms(pairs, 10.0) == pytest.approx([500.0, 1500.0])
    assert waits_ms([], 10.0) == []
