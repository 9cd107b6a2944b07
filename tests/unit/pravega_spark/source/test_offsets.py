"""Offsets as JSON: canonical, versioned, and refused when they are not ours."""

from __future__ import annotations

import json

import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark.source.offsets import SourceOffset


def test_text_does_not_depend_on_order() -> None:
    first = SourceOffset({"s/b": {10: 1, 9: 2}, "s/a": {0: 0}}, {"s/b": {1: 1}}, {"s/b": {7: 70}})
    second = SourceOffset({"s/a": {0: 0}, "s/b": {9: 2, 10: 1}}, {"s/b": {1: 1}}, {"s/b": {7: 70}})
    text = json.dumps(first.to_json())
    assert text == json.dumps(second.to_json())
    assert text == (
        '{"version": 1, "streams": {"s/a": {"0": 0}, "s/b": {"9": 2, "10": 1}}, '
        '"from": {"s/b": {"1": 1}}, "ended": {"s/b": {"7": 70}}}'
    )


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
        ({"version": 2, "streams": {"s/t": {"0": 0}}}, "has version 2, this connector reads version 1"),
        ({"version": 1}, "damaged: None names no streams"),
        ({"version": 1, "streams": {}}, "names no streams"),
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
