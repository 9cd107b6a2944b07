"""Makes Arrow arrays from NumPy arrays and constants without ``pa.array`` and ``pa.scalar``.

The first of those calls in a process imports pandas where that is installed (0.25 s of CPU), to see whether the values
are its own. Reads make all their columns here, so that no process which only plans or reads imports it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]

_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}


def number_array(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Integers without nulls as an array of ``kind`` (int32 or int64), in the memory that they are in if they fit."""
    values = np.ascontiguousarray(numbers, dtype=_NUMBERS[kind])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def constant_array(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """The same value ``count`` times: a text as a string array, or a number."""
    if isinstance(value, int):
        return number_array(np.full(count, value), kind)
    text = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])


def empty_value(kind: pa.DataType) -> pa.Scalar:
    """The value of no bytes, of a binary type with 64-bit or 32-bit offsets."""
    ends = np.zeros(2, dtype=np.int64 if kind == pa.large_binary() else np.int32)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(b"")])[0]
