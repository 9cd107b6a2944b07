"""Tests numbers and truth values out of Arrow arrays, with slices that begin within a byte of a bitmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.arrow_numbers import bits_of, flags_of, numbers_of, valid_of
from pravega_common.invariants import InvariantViolation

SLICES = [(0, 40), (0, 0), (3, 1), (8, 8), (5, 30), (39, 1), (17, 23)]
KINDS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
FLAGS = [number % 3 == 0 or number % 7 == 2 for number in range(40)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("first", "count"), SLICES)
def test_numbers(kind: pa.DataType, first: int, count: int) -> None:
    found = numbers_of(pa.array(range(40), kind).slice(first, count))
    assert found.tolist() == list(range(first, first + count))
    assert found.dtype == kind.to_pandas_dtype()


def test_numbers_beside_nulls() -> None:
    array = pa.array([1, None, 3], pa.int32())
    assert np.where(valid_of(array), numbers_of(array), 0).tolist() == [1, 0, 3]
    nulls = pa.nulls(3, pa.int64())
    assert np.where(valid_of(nulls), numbers_of(nulls), 7).tolist() == [7, 7, 7]


def test_numbers_of_another_type() -> None:
    with pytest.raises(InvariantViolation, match="another type"):
        numbers_of(pa.array(["text"]))


@pytest.mark.parametrize(("first", "count"), SLICES)
def test_flags(first: int, count: int) -> None:
    assert flags_of(pa.array(FLAGS).slice(first, count)).tolist() == FLAGS[first : first + count]


def test_flags_with_nulls() -> None:
    with pytest.raises(InvariantViolation, match="nulls"):
        flags_of(pa.array([True, None]))


@pytest.mark.parametrize("value", [7, "text", b"bytes", True, [1]], ids=str)
@pytest.mark.parametrize(("first", "count"), SLICES)
def test_what_is_valid(value: Any, first: int, count: int) -> None:
    array = pa.array([value if flag else None for flag in FLAGS])
    assert valid_of(array.slice(first, count)).tolist() == FLAGS[first : first + count]
    assert valid_of(pa.array([value] * 40).slice(first, count)).tolist() == [True] * count


def test_nothing_of_the_null_type_is_valid() -> None:
    assert valid_of(pa.nulls(9).slice(2)).tolist() == [False] * 7


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40])
def test_bits(count: int) -> None:
    made = pa.Array.from_buffers(pa.bool_(), count, [None, bits_of(np.array(FLAGS[:count], dtype=np.bool_))])
    made.validate(full=True)
    assert made.to_pylist() == FLAGS[:count]
