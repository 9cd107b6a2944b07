"""Lays out hash tables: keys of any length, iterated in a stable order that means nothing."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import BadKeyVersion, InvalidArgument, KeyNotFound, TableError
from pravega_common.model.table_limits import check_key_length
from segment_service.tables.hasher import order_key, order_key_bytes


class HashTableLayout:
    """The continuation token is the order key of the last entry returned."""

    key_length: Final = 0
    supports_delta: Final = True
    supports_delete_if_empty: Final = True

    def order_key(self, key: bytes) -> bytes:
        return order_key(key)

    def check_key(self, segment: str, key: bytes) -> None:
        check_key_length(segment, len(key))

    def absent_key_error(self, segment: str, was_removed: bool) -> TableError:
        """A key that was removed answers as a mismatch: clients refetch on that one at once, while they wait seconds on
        ``KeyNotFound`` (docs/wire-protocol.md 2.2)."""
        return BadKeyVersion(segment) if was_removed else KeyNotFound(segment)

    def page_start(self, continuation: bytes, first_key: bytes, last_key: bytes) -> tuple[bytes, bool]:
        if first_key or last_key:
            raise InvalidArgument("a hash table is not sorted by key: give no first and no last key")
        if len(continuation) not in (0, order_key_bytes):
            raise InvalidArgument(f"continuation token of {len(continuation)} bytes; pass on what a page returned")
        return continuation, not continuation
