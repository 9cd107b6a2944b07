"""Tests which segments a scale seals, and which key ranges it creates."""

from __future__ import annotations

import pytest

from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentRange
from pravega_common.names import segment_id
from pravega_spark.commands.scaling import plan_merge, plan_segments, plan_split

LATER = segment_id(4, 2)
SEGMENTS = [
    SegmentRange("s", "t", 0, 0.0, 0.25),
    SegmentRange("s", "t", 1, 0.25, 0.5),
    SegmentRange("s", "t", LATER, 0.5, 1.0),
]


def test_a_split_makes_equal_parts_of_one_segment() -> None:
    assert plan_split(SEGMENTS, "0").ranges == ((0.0, 0.125), (0.125, 0.25))
    plan = plan_split(SEGMENTS, "4:4")
    assert plan.sealed == (LATER,)
    assert plan.ranges == ((0.5, 0.625), (0.625, 0.75), (0.75, 0.875), (0.875, 1.0))
    for name in (f"{LATER}", "4.#epoch.2", "s/t/4.#epoch.2"):
        assert plan_split(SEGMENTS, f"{name}:4") == plan


def test_neighbours_are_merged_in_any_order() -> None:
    plan = plan_merge(SEGMENTS, "4,1")
    assert (plan.sealed, plan.ranges) == ((LATER, 1), ((0.25, 1.0),))
    assert plan_merge(SEGMENTS, "0,1,4").ranges == ((0.0, 1.0),)


def test_all_segments_are_replaced() -> None:
    plan = plan_segments(SEGMENTS, 2)
    assert (plan.sealed, plan.ranges) == ((0, 1, LATER), ((0.0, 0.5), (0.5, 1.0)))


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [
        ("split", "7", r"--split 7: the stream has no open segment 7; it has 0.#epoch.0, 1.#epoch.0, 4.#epoch.2"),
        ("split", "4.#epoch.1", r"--split 4.#epoch.1: the stream has no open segment 4.#epoch.1; it has 0"),
        ("split", "s/u/4.#epoch.2", r"the stream has no open segment s/u/4.#epoch.2; it has 0"),
        ("split", "0:1", r"--split 0:1: '1' is no whole number in 2\.\."),
        ("split", "zero", r"--split zero: 'zero' is no whole number"),
        ("merge", "0,4", r"--merge 0,4: these segments are no neighbours, their keys are \[0, 0.25\), \[0.5, 1\)"),
        ("merge", "0", r"--merge 0 must name two or more different segments"),
        ("merge", "1,1", r"--merge 1,1 must name two or more different segments"),
        ("segments", "0", r"--segments 0 is not in 1\.\.4500"),
    ],
)
def test_what_cannot_be_scaled(option: str, text: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        if option == "split":
            plan_split(SEGMENTS, text)
        elif option == "merge":
            plan_merge(SEGMENTS, text)
        else:
            plan_segments(SEGMENTS, int(text))
