"""Offsets as JSON: canonical, versioned, and refused when they are not ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import InvalidArgument
from pravega_spark.source.offsets import SourceOffset


def test_text_does_not_depend_on_order() -> None:
    first = SourceOffset({"s/b": {10: 1, 9: 2}, "s/a": {0: 0}}, {"s/b": {10: 1, 7: 1, 9: 0}}, {"s/b": {7: 70}})
    second = SourceOffset({"s/a": {0: 0}, "s/b": {9: 2, 10: 1}}, {"s/b": {7: 1, 9: 0, 10: 1}}, {"s/b": {7: 70}})
    text = json.dumps(first.to_json())
    assert text == json.dumps(second.to_json())
    assert text == (
        '{"version": 2, "streams": {"s/a": {"0": 0}, "s/b": {"9": 2, "10": 1}}, '
        '"from": {"s/b": {"7": 1, "9": 0}}, "ended": {"s/b": {"7": 70}}}'
    )


def test_what_an_older_version_wrote() -> None:
    made = {
        "version": 1,
        "streams": {"s/t": {"1": 9, "2": 0, "3": 4}},
        "from": {"s/t": {"0": 5, "1": 9}},
        "ended": {"s/t": {"0": 50}},
    }
    assert SourceOffset.from_json(made) == SourceOffset(
        {"s/t": {1: 9, 2: 0, 3: 4}}, {"s/t": {0: 5, 1: 9}}, {"s/t": {0: 50}}
    )


@pytest.mark.parametrize("streams", [{}, {"s/t": {"0": 5}}])
def test_a_first_start_in_streams_that_the_end_does_not_have(streams: dict[str, dict[str, int]]) -> None:
    """As earlier versions wrote it for Spark 4.0 and 4.1: no batch has these streams."""
    made = SourceOffset.from_json({"version": 2, "streams": streams, "first": {"s/u": {"0": 1}}})
    assert made == SourceOffset({"s/t": {0: 5}} if streams else {})


def test_a_start_says_only_what_differs() -> None:
    idle = dict.fromkeys(range(1000), 7)
    offset = SourceOffset({"s/t": {**idle, 3: 9}, "s/u": {0: 1}}, {"s/t": idle, "s/u": {0: 1}})
    assert offset.to_json()["from"] == {"s/t": {"3": 7}, "s/u": {}}


def test_a_segment_that_came_after_the_start_is_not_of_it() -> None:
    """A successor that a batch ends at may stand at its beginning, as one that was there and idle does."""
    offset = SourceOffset({"s/t": {1: 0, 2: 0}}, {"s/t": {0: 5, 1: 0}}, {"s/t": {0: 9}})
    assert offset.to_json()["from"] == {"s/t": {"0": 5, "2": None}}
    assert SourceOffset.from_json(offset.to_json()) == offset


_OFFSETS = st.dictionaries(st.integers(0, 6), st.integers(0, 3), min_size=1)


@given(_OFFSETS, _OFFSETS)
def test_round_trip_of_any_start_and_end(start: dict[int, int], end: dict[int, int]) -> None:
    offset = SourceOffset({"s/t": end}, {"s/t": start})
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    "offset",
    [
        SourceOffset({"s/t": {0: 0}}),
        SourceOffset({"s/t": {(7 << 32) | 3: 2**62}}, {"s/t": {0: 1}}),
        SourceOffset({"s/t": {5: 0}}, {"s/t": {0: 1}}, {"s/t": {0: 9}}),
    ],
)
def test_round_trip(offset: SourceOffset) -> None:
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_initial_offset_has_no_from() -> None:
    assert "from" not in SourceOffset({"s/t": {0: 0}}).to_json()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({}, "has no version"),
        ({"version": "1", "streams": {}}, "has no version"),
        ({"version": 3, "streams": {"s/t": {"0": 0}}}, "has version 3, this connector reads versions 1 to 2"),
        ({"version": 0, "streams": {"s/t": {"0": 0}}}, "has version 0"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {}}, "names no streams"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {"s/t": 5}}, "5 for segments"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {"s/u": {}}}, "s/u has {} for segments"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {"s/t": {"0": None}}}, "for segments"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {"s/t": {"1": None}}}, "for segments"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "from": {"s/t": {"x": 1}}}, "segment 'x'"),
        ({"version": 1}, "damaged: None names no streams"),
        ({"version": 1, "streams": {}}, "names no streams"),
        ({"version": 1, "streams": {}, "first": {"s/t": {"0": 0}}}, "names no streams"),
        ({"version": 2, "streams": {}, "from": {"s/t": {"0": 0}}}, "names no streams"),
        ({"version": 2, "streams": {"s/t": {"0": 0}}, "first": {}}, "names no streams"),
        ({"version": 1, "streams": {"t": {"0": 0}}}, "'t' is not of the form scope/stream"),
        ({"version": 1, "streams": {"s/t": {}}}, "for segments"),
        ({"version": 1, "streams": {"s/t": {"0": -1}}}, "segment '0' at -1"),
        ({"version": 1, "streams": {"s/t": {"0": True}}}, "at True"),
        ({"version": 1, "streams": {"s/t": {"x": 1}}}, "segment 'x'"),
        ({"version": 1, "streams": {"s/t": {"0": 2**63}}}, "segment '0' at 9223372036854775808"),
        ({"version": 1, "streams": {"s/t": {"9223372036854775808": 0}}}, "segment '9223372036854775808'"),
        ([1], r"\[1\] is not one of this source"),
        (None, "None is not one of this source"),
        ({"version": 1, "streams": {"s/t": {"0": 0}}, "from": 5}, "5 names no streams"),
    ],
)
def test_damaged_or_newer(made: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SourceOffset.from_json(made)
