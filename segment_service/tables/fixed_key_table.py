"""Lays out fixed-key tables: all keys of one length, iterated in the order of their unsigned bytes."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import BadKeyVersion, InvalidArgument, TableError


class FixedKeyTableLayout:
    """Pages are asked for by their first key; the continuation token only says that entries were returned."""

    supports_delta: Final = False
    supports_delete_if_empty: Final = False

    def __init__(self, key_length: int) -> None:
        self.key_length = key_length

    def order_key(self, key: bytes) -> bytes:
        return key

    def check_key(self, segment: str, key: bytes) -> None:
        if len(key) != self.key_length:
            raise InvalidArgument(f"{segment}: key of {len(key)} bytes; keys of this table have {self.key_length}")

    def absent_key_error(self, segment: str, was_removed: bool) -> TableError:
        """A real store answers a mismatch here too (docs/wire-protocol.md 2.2)."""
        return BadKeyVersion(segment)

    def page_start(self, continuation: bytes, first_key: bytes, last_key: bytes) -> tuple[bytes, bool]:
        if continuation:
            raise InvalidArgument("a fixed-key table is paged by first key: give no continuation token")
        return first_key, True
