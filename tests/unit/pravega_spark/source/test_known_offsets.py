"""Offsets that come again are parsed once, and mean what they would mean alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark.source.known_offsets import KnownOffsets, offsets_kept_max
from pravega_spark.source.offsets import SourceOffset


def made(number: int) -> dict[str, Any]:
    """An offset as Spark gives it each time: equal, and another object."""
    offset: dict[str, Any] = json.loads(
        json.dumps(SourceOffset({"s/t": {0: number, 1: 5}}, {"s/t": {0: 0, 1: 5}}).to_json())
    )
    return offset


def test_an_offset_that_comes_again_is_parsed_once() -> None:
    known = KnownOffsets()
    first = known.parsed(made(1))
    assert known.parsed(made(2)) == SourceOffset.from_json(made(2))
    assert known.parsed(made(1)) is first and first == SourceOffset.from_json(made(1))


def test_only_the_last_ones_are_kept() -> None:
    known = KnownOffsets()
    first = known.parsed(made(0))
    for number in range(1, offsets_kept_max + 1):
        known.parsed(made(number))
    assert known.parsed(made(0)) is not first
    assert len(known._known) == offsets_kept_max


def test_a_damaged_one_is_an_error_each_time() -> None:
    known = KnownOffsets()
    known.parsed(made(1))
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="damaged"):
            known.parsed({**made(1), "streams": {}})
