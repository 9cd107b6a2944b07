"""Holds the plan for the optional jar to what its ``NativePlan.java`` reads and writes over."""

from __future__ import annotations

import json
import pickle

import pytest

from pravega_common.invariants import InvariantViolation
from pravega_spark.source.native_plan import NO_PLAN, left_to_python, native_plan
from pravega_spark.source.partition_reader import SpanPartition
from pravega_spark.source.range_planner import Span

SPANS = (Span("s", "a", 0, 16, 160), Span("s", "a", 1 << 32, 0, 80))
STORES = ("localhost:12345", "[::1]:6000")
MARK = "pravega-spark native plan 1 "


def written_over(plan: str, span: int, offset: int) -> str:
    """As the jar does it: two numbers of 10 and 20 digits behind the mark."""
    numbers = f"{span:010} {offset:020}"
    return MARK + numbers + plan[len(MARK) + len(numbers) :]


def test_a_plan_has_a_mark_numbers_of_fixed_width_and_json() -> None:
    plan = native_plan(SPANS, STORES)
    span, offset, length, text = plan.removeprefix(MARK).split(" ", 3)
    assert (span, offset, length) == ("0" * 10, f"{16:020}", f"{len(text):010}")
    assert text.isascii()
    first, second = json.loads(text)
    assert first == {
        "segment": "s/a/0.#epoch.0",
        "scope": "s",
        "stream": "a",
        "segment_id": 0,
        "start": 16,
        "end": 160,
        "host": "localhost",
        "port": 12345,
    }
    assert (second["segment_id"], second["host"], second["port"]) == (1 << 32, "::1", 6000)


def test_the_text_is_whole_in_the_pickled_partition() -> None:
    partition = SpanPartition(*SPANS, stores=STORES)
    partition.native_plan = native_plan(SPANS, STORES)
    assert pickle.dumps(partition, protocol=5).count(partition.native_plan.encode()) == 1


def test_a_store_that_is_not_known_makes_no_plan() -> None:
    assert native_plan(SPANS, ("localhost:1", "")) == NO_PLAN
    assert native_plan((), ()) == NO_PLAN


def test_python_reads_what_is_left() -> None:
    plan = native_plan(SPANS, STORES)
    assert list(left_to_python(SPANS, NO_PLAN)) == list(SPANS)
    assert list(left_to_python(SPANS, plan)) == list(SPANS)
    assert list(left_to_python(SPANS, written_over(plan, 0, 100))) == [Span("s", "a", 0, 100, 160), SPANS[1]]
    assert list(left_to_python(SPANS, written_over(plan, 1, 40))) == [Span("s", "a", 1 << 32, 40, 80)]


def test_an_offset_outside_of_its_span_is_refused() -> None:
    plan = native_plan(SPANS, STORES)
    for offset in (15, 161):
        with pytest.raises(InvariantViolation):
            list(left_to_python(SPANS, written_over(plan, 0, offset)))
