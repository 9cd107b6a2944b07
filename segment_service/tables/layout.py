"""Defines the differences between the two kinds of tables."""

from __future__ import annotations

from typing import Protocol

from pravega_common.errors import TableError


class TableLayout(Protocol):
    """One kind of table."""

    @property
    def key_length(self) -> int:
        """0 if keys may have any length."""
        ...

    @property
    def supports_delta(self) -> bool: ...

    @property
    def supports_delete_if_empty(self) -> bool: ...

    def order_key(self, key: bytes) -> bytes:
        """The value by which keys are sorted for iteration."""
        ...

    def check_key(self, segment: str, key: bytes) -> None:
        """``InvalidArgument`` for a key of a length that the table cannot hold."""
        ...

    def absent_key_error(self, segment: str, was_removed: bool) -> TableError:
        """The error for a condition on a concrete version of an absent key."""
        ...

    def page_start(self, continuation: bytes, first_key: bytes, last_key: bytes) -> tuple[bytes, bool]:
        """The order key at which a page begins, and whether it is part of it; ``InvalidArgument`` for bad arguments.
        The order key of an entry is the continuation after it."""
        ...
