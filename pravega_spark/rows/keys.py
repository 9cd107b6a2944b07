"""Turns routing keys of other types into the texts that Pravega routes by, whole columns at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pravega_common.arrow_numbers import flags_of
from pravega_spark.rows.arrays import number_array

_UTF8: Final = (
    r"^(?:[\x00-\x7F]|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}"
    r"|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2})*$"
)
"""Whole bytes that are UTF-8 (RFC 3629), for a search that takes bytes as they are."""


def key_texts(keys: pa.Array) -> pa.Array:
    """Returns the routing key of each value as text; null stays null.

    Integers are written in decimal. Bytes are taken as UTF-8 where they are, so a key goes where its text goes; other
    bytes are the characters of the same numbers (ISO 8859-1). What a key becomes depends on that key alone.
    """
    if pa.types.is_integer(keys.type):
        return keys.cast(pa.string())
    if not pa.types.is_binary(keys.type) and not pa.types.is_large_binary(keys.type):
        return keys
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        is_text = pc.or_kleene(pc.match_substring_regex(keys, _UTF8), pc.is_null(keys))
    others = pc.invert(is_text)
    found = pa.concat_arrays([keys.filter(is_text).cast(pa.string()), _latin_texts(keys.filter(others))])
    # Where each value went: the texts come first, in their order, and the others follow.
    mask = flags_of(is_text)
    places = np.where(mask, np.cumsum(mask) - 1, int(mask.sum()) + np.cumsum(~mask) - 1)
    return found.take(number_array(places, pa.int64()))


def _latin_texts(keys: Any) -> pa.Array:
    """Bytes without nulls, each as the character of its number: two bytes of UTF-8 from 128 on."""
    plain = keys.cast(pa.large_binary())
    _, offset_buffer, data_buffer = plain.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(plain) + 1, offset=plain.offset * 8)
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    is_high = data >= 0x80
    ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(1 + is_high)))
    made: npt.NDArray[np.uint8] = np.empty(int(ends[-1]), dtype=np.uint8)
    made[ends[1:] - 1] = np.where(is_high, 0x80 | (data & 0x3F), data)
    made[ends[:-1][is_high]] = 0xC0 | (data[is_high] >> 6)
    places = ends[offsets - offsets[0]]
    buffers: list[Any] = [None, pa.py_buffer(places), pa.py_buffer(made)]
    return pa.Array.from_buffers(pa.large_string(), len(plain), buffers).cast(pa.string())
