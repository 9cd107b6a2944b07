"""Makes Arrow arrays from NumPy arrays and constants without ``pa.array`` and ``pa.scalar``.

The first of those calls in a process imports pandas where that is installed (0.25 s of CPU), to see whether the values
are its own. So columns are made here, and numbers out of them come from ``pravega_common.arrow_numbers``: a process
that plans or reads does not import it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pravega_common.arrow_numbers import Flags, bits_of

Int64s = npt.NDArray[np.int64]

_NUMBERS: Final = {pa.int32(): np.int32, pa.int64(): np.int64}


def number_array(numbers: npt.NDArray[Any], kind: pa.DataType, valid: Flags | None = None) -> pa.Array:
    """Integers as an array of ``kind`` (int32 or int64), in the memory that they are in if they fit.

    ``valid``: which of them are not null; all, if it is not given.
    """
    values = np.ascontiguousarray(numbers, dtype=_NUMBERS[kind])
    validity = None if valid is None else bits_of(valid)
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


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
