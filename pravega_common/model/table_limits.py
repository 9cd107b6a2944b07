"""Defines the limits of requests about table segments, which stores enforce and clients split their batches by.

A request above a limit is answered with an error, and nothing of it is done. The limits on keys and values are those
of a real store (docs/wire-protocol.md 2.2); those on one request allow what the Java client sends at most: fifteen
keys with the largest values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from pravega_common.errors import InvalidArgument

key_bytes_max: Final = 8_192
value_bytes_max: Final = 1_048_576 - 8_192
fixed_key_bytes_max: Final = 256
"""Longest key of a fixed-key table; a real store, as ours, closes the connection that asks for a longer one."""

update_entries_max: Final = 10_000
"""Entries or keys of one update or removal."""
update_bytes_max: Final = 0x00FFFFFF - 8 * 1024
"""Bytes that the entries or keys of one update take on the wire; with the segment's name they fit a frame."""
read_keys_max: Final = 1_000
"""Keys of one read."""
read_bytes_max: Final = 0x00FFFFFF - 16 * 1024
"""Bytes that the entries of one reply take on the wire; with the segment's name they fit a frame."""
page_entries_max: Final = 2_000
"""Entries of one page of an iteration or a delta: some ten milliseconds of a store's event loop."""
page_bytes_max: Final = 2 * 1024 * 1024
"""Bytes of records above which a page ends; its last entry may exceed it."""

_entry_overhead_bytes: Final = 24
"""Two sizes before the key, its version, two sizes before the value (docs/wire-protocol.md 1.5)."""

T = TypeVar("T")


def entry_wire_bytes(key_length: int, value_length: int) -> int:
    """Bytes of one entry on the wire."""
    return _entry_overhead_bytes + key_length + value_length


def check_key_length(table: str, length: int) -> None:
    """``InvalidArgument`` for a key that no table can hold."""
    if not 0 < length <= key_bytes_max:
        raise InvalidArgument(f"{table}: key of {length} bytes; a key has 1 to {key_bytes_max} bytes")


def check_fixed_key_length(table: str, length: int) -> None:
    """``InvalidArgument`` for a length that the keys of no table have; 0 stands for keys of any length."""
    if not 0 <= length <= fixed_key_bytes_max:
        raise InvalidArgument(f"{table}: keys of {length} bytes; the limit is {fixed_key_bytes_max}")


def check_value_length(table: str, length: int) -> None:
    """``InvalidArgument`` for a value that no table can hold."""
    if length > value_bytes_max:
        raise InvalidArgument(f"{table}: value of {length} bytes; the limit is {value_bytes_max}")


def check_update(table: str, count: int, wire_bytes: int) -> None:
    """``InvalidArgument`` for an update or a removal that is too much for one request."""
    if count > update_entries_max or wire_bytes > update_bytes_max:
        raise InvalidArgument(
            f"{table}: {count} entries of {wire_bytes} bytes in one request; the limits are {update_entries_max} "
            f"entries and {update_bytes_max} bytes: send several requests"
        )


def check_read(table: str, count: int, reply_bytes: int) -> None:
    """``InvalidArgument`` for a read of too many keys, or one whose reply would be too large."""
    if count > read_keys_max or reply_bytes > read_bytes_max:
        raise InvalidArgument(
            f"{table}: {count} keys in one read, with {reply_bytes} bytes of entries to answer; the limits are "
            f"{read_keys_max} keys and {read_bytes_max} bytes: read fewer keys at a time"
        )


def removal_batches(keys: Sequence[T], key_lengths: Sequence[int]) -> Iterator[Sequence[T]]:
    """``keys`` in runs that fit one removal each."""
    start, taken = 0, 0
    for position, length in enumerate(key_lengths):
        size = entry_wire_bytes(length, 0)
        if position > start and (position - start >= update_entries_max or taken + size > update_bytes_max):
            yield keys[start:position]
            start, taken = position, 0
        taken += size
    if start < len(keys):
        yield keys[start:]
