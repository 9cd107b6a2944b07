"""Computes the hashes that place keys in segments and segments in containers (docs/wire-protocol.md 6.3, 6.4).

All are murmur3 (x64, 128 bits, first half) with a signed 32-bit seed that is sign-extended to 64 bits. Text is hashed
as UTF-16 little-endian. ``positions_of_keys`` is the vectorised form for whole columns of keys.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import mmh3
import numpy as np
import numpy.typing as npt

from pravega_common.arrow_numbers import numbers_of, valid_of
from pravega_common.errors import InvalidArgument
from pravega_common.names import primary_segment_name

if TYPE_CHECKING:
    import pyarrow as pa

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F

vectorised_key_chars_max: Final = 256
"""Keys longer than this are hashed one by one, so that one long key does not widen the table of all the others."""
containers_remembered_max: Final = 16_384
"""Primary segments whose container is remembered: 10 MiB at most, with names of this many characters."""
remembered_name_chars_max: Final = 512
"""Longest name whose container is remembered. Longer ones that clients make up would fill the memory."""


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: a signed 32-bit number; used to turn a salt into a seed."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


ROUTING_SEED: Final = java_string_hash("EventRouter")
TABLE_ROUTING_SEED: Final = java_string_hash("KeyValueTableRouter")
CONTAINER_SEED: Final = java_string_hash("SegmentToContainerMapper")
ATTRIBUTE_SEED: Final = java_string_hash("SegmentAttribute")


def murmur3(data: bytes | memoryview, seed: int) -> tuple[int, int]:
    """Both signed 64-bit halves of murmur3 x64 128 with a signed 32-bit seed."""
    if seed >= 0:
        first, second = mmh3.hash64(bytes(data), seed, x64arch=True, signed=True)
        return int(first), int(second)
    return _murmur3_sign_extended(bytes(data), seed)


def _murmur3_sign_extended(data: bytes, seed: int) -> tuple[int, int]:
    # mmh3 extends a seed with zeros, which differs for negative ones.
    h1 = h2 = seed & _MASK
    blocks = len(data) // 16
    for k1, k2 in struct.iter_unpack("<QQ", data[: blocks * 16]):
        h1 ^= _mix(k1, _C1, 31, _C2)
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix(k2, _C2, 33, _C1)
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[blocks * 16 :].ljust(16, b"\0")
    k1, k2 = struct.unpack("<QQ", tail)
    h1 ^= _mix(k1, _C1, 31, _C2) ^ len(data)
    h2 ^= _mix(k2, _C2, 33, _C1) ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _final_mix(h1), _final_mix(h2)
    h1 = h1 + h2 & _MASK
    return _signed(h1), _signed(h2 + h1 & _MASK)


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 64 - bits) & _MASK


def _mix(value: int, first: int, bits: int, second: int) -> int:
    return _rotate(value * first, bits) * second & _MASK


def _final_mix(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def to_unit_interval(hash_value: int) -> float:
    """A 64-bit hash as a number in [0, 1): its upper 52 bits as the mantissa."""
    bits = 0x3FF0000000000000 + ((hash_value >> 12) & 0x000FFFFFFFFFFFFF)
    value: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    return value - 1.0


def position_of_key(routing_key: str) -> float:
    """Returns the position of a routing key in [0, 1)."""
    return to_unit_interval(murmur3(routing_key.encode("utf-16-le", "surrogatepass"), ROUTING_SEED)[0])


def position_of_table_key(primary_key: bytes) -> float:
    """Returns the position of a table's primary key in [0, 1)."""
    return to_unit_interval(murmur3(primary_key, TABLE_ROUTING_SEED)[0])


def attribute_id_of(name: str) -> bytes:
    """The 16-byte id of a named client attribute (docs/wire-protocol.md 7)."""
    return struct.pack("<qq", *murmur3(name.encode("utf-16-le"), ATTRIBUTE_SEED))


def container_of_segment(segment: str, container_count: int) -> int:
    """The container that a segment belongs to; transactions and all epochs go with their primary segment."""
    primary = primary_segment_name(segment)
    is_remembered = len(primary) <= remembered_name_chars_max and primary.isascii()
    return (_remembered_container if is_remembered else _container_of_primary)(primary, container_count)


def _container_of_primary(primary: str, container_count: int) -> int:
    return jump_hash(murmur3(primary.encode("utf-16-le", "surrogatepass"), CONTAINER_SEED)[0], container_count)


# A commit of many segments asks three times for each of its transactions' segments, which share their primary ones.
_remembered_container = lru_cache(maxsize=containers_remembered_max)(_container_of_primary)


def jump_hash(hash_value: int, bucket_count: int) -> int:
    """Consistent hash of a 64-bit value to one of ``bucket_count`` buckets (docs/wire-protocol.md 6.4)."""
    if bucket_count <= 0:
        raise InvalidArgument(f"bucket count {bucket_count} must be positive")
    state = hash_value & _MASK
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & _MASK
        step = int((candidate + 1) / (((state >> 33) + 1) / 2**31))
        if not 0 <= step < bucket_count:
            return candidate
        candidate = step


# ---- whole columns ---------------------------------------------------------------------------------------------------


def positions_of_keys(keys: Sequence[str | None] | pa.Array[Any] | pa.ChunkedArray[Any]) -> npt.NDArray[np.float64]:
    """``position_of_key`` for every key, as a float64 array of the same length; a null key gives NaN.

    The same values as the scalar function. Of a dictionary array only the dictionary is hashed.
    """
    import pyarrow as pa  # Not at the top: only the column form needs Arrow.

    array: Any = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys, type=pa.string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        distinct = np.append(positions_of_keys(array.dictionary), np.nan)
        indices = np.where(valid_of(array.indices), numbers_of(array.indices), len(array.dictionary))
        taken: npt.NDArray[np.float64] = distinct[indices]
        return taken
    result = _positions_of_texts(array.cast(pa.large_string()))
    if array.null_count:
        result[~valid_of(array)] = np.nan
    return result


def _positions_of_texts(keys: Any) -> npt.NDArray[np.float64]:
    count = len(keys)
    result = np.empty(count, dtype=np.float64)
    _, offset_buffer, data_buffer = keys.buffers()
    if count == 0 or offset_buffer is None:
        return result
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=count + 1, offset=keys.offset * 8)
    used = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    data = np.concatenate((used, np.zeros(_word_bytes, dtype=np.uint8)))
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    for first in range(0, count, _batch_keys):
        batch = slice(first, first + _batch_keys)
        result[batch], plain = _positions_of_ascii(data, starts[batch], lengths[batch])
        for index in np.flatnonzero(~plain) + first:
            text = used[starts[index] : starts[index] + lengths[index]].tobytes()
            result[index] = position_of_key(_text_of(text))
    return result


def _text_of(key: bytes) -> str:
    """Returns the text of a key. Bytes that are no UTF-8, which Spark has in its texts too, are taken as ISO 8859-1."""
    try:
        return key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return key.decode("latin-1")


_word_bytes: Final = 8
_batch_keys: Final = 16_384
_LENGTH_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


def _positions_of_ascii(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Positions of keys, and which of them are right: those that are ASCII and not too long.

    Eight bytes of every key are taken at a time; an ASCII key in UTF-16-LE is its bytes with a zero after each, so
    they make one block of 16. ``data`` has a word of padding at its end.
    """
    words_at = np.lib.stride_tricks.as_strided(data[:_word_bytes].view("<u8"), (len(data) - 7,), (1,))
    word_count = min(int(lengths.max()), vectorised_key_chars_max) // _word_bytes + 1
    h1 = np.full(len(starts), ROUTING_SEED, dtype=np.uint64)
    h2 = h1.copy()
    seen = np.zeros(len(starts), dtype=np.uint64)
    for index in range(word_count):
        rest = lengths - index * _word_bytes
        position = np.minimum(starts + index * _word_bytes, len(data) - _word_bytes)
        word = words_at[position] & _LENGTH_MASKS[np.clip(rest, 0, _word_bytes)]
        seen |= word
        k1 = _mix_column(_spread(word & np.uint64(0xFFFFFFFF)), _C1, 31, _C2)
        k2 = _mix_column(_spread(word >> np.uint64(32)), _C2, 33, _C1)
        x1, x2 = h1 ^ k1, h2 ^ k2  # All that a last, partial block does; an empty one changes nothing.
        full1 = (_rotate_column(x1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        full2 = (_rotate_column(x2, 31) + full1) * np.uint64(5) + np.uint64(0x38495AB5)
        is_full = rest >= _word_bytes
        h1, h2 = np.where(is_full, full1, x1), np.where(is_full, full2, x2)
    byte_lengths = (lengths * 2).astype(np.uint64)
    h1 = (h1 ^ byte_lengths) + (h2 ^ byte_lengths)
    h2 = (h2 ^ byte_lengths) + h1
    first = _final_mix_column(h1) + _final_mix_column(h2)
    bits = np.uint64(0x3FF0000000000000) + (first >> np.uint64(12))
    plain = ((seen & np.uint64(0x8080808080808080)) == 0) & (lengths <= vectorised_key_chars_max)
    return bits.view(np.float64) - 1.0, plain


def _spread(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The four low bytes of each value, each followed by a zero byte."""
    values = (values | (values << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (values | (values << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)


def _rotate_column(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mix_column(values: npt.NDArray[np.uint64], first: int, bits: int, second: int) -> npt.NDArray[np.uint64]:
    return _rotate_column(values * np.uint64(first), bits) * np.uint64(second)


def _final_mix_column(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))
