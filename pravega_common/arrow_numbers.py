"""Reads numbers and truth values out of Arrow arrays without ``Array.to_numpy`` and ``fill_null``.

The first of those calls in a process imports pandas where that is installed: 0.3 s of CPU that a process which plans or
reads spares. (One that writes does not: PySpark imports it when a task ends.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pravega_common.invariants import check

if TYPE_CHECKING:
    import pyarrow as pa

Flags = npt.NDArray[np.bool_]


def numbers_of(array: pa.Array[Any]) -> npt.NDArray[Any]:
    """Returns the values of an integer array, read-only, in the memory they are in; any number stands at a null."""
    import pyarrow as pa  # Not at the top: who imports this has columns now and then only.

    check(pa.types.is_integer(array.type), "numbers are asked of another type", type=str(array.type))
    width_bytes = array.type.bit_width // 8
    dtype = np.dtype(f"{'i' if pa.types.is_signed_integer(array.type) else 'u'}{width_bytes}")
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * width_bytes)


def flags_of(array: pa.Array[Any]) -> Flags:
    """Returns the values of a boolean array without nulls."""
    check(array.null_count == 0, "flags with nulls", nulls=array.null_count)
    return _bits(array.buffers()[1], array.offset, len(array))


def valid_of(array: pa.Array[Any]) -> Flags:
    """Tells which values of an array of any type are not null."""
    if not array.null_count:
        return np.ones(len(array), dtype=np.bool_)
    validity = array.buffers()[0]
    if validity is None:  # an array of the null type
        return np.zeros(len(array), dtype=np.bool_)
    return _bits(validity, array.offset, len(array))


def bits_of(flags: Flags) -> pa.Buffer:
    """Returns the bitmap of flags, as Arrow keeps booleans and which values are not null."""
    import pyarrow as pa

    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _bits(bitmap: pa.Buffer | None, first: int, count: int) -> Flags:
    if bitmap is None or not count:
        return np.zeros(count, dtype=np.bool_)
    octets = np.frombuffer(bitmap, dtype=np.uint8)[first // 8 : (first + count + 7) // 8]
    return np.unpackbits(octets, bitorder="little")[first % 8 : first % 8 + count].astype(np.bool_)
