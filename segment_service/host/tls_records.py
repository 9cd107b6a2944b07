"""Puts the parts of replies together to what one TLS record holds.

The event loop hands each part to OpenSSL by itself, which makes a record of it: acknowledgements and small blocks of
the cache would cost both sides a record each, and the client two system calls with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

record_bytes: Final = 16 * 1024
"""The most that a record holds."""


def in_records(parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The same bytes in parts that fill records; at most ``record_bytes`` of a larger part are copied."""
    whole: list[bytes | memoryview] = []
    pending: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        rest = part
        if pending and size + len(rest) >= record_bytes:
            view = memoryview(rest)
            pending.append(view[: record_bytes - size])
            whole.append(b"".join(pending))
            rest, pending, size = view[record_bytes - size :], [], 0
        if len(rest) >= record_bytes:
            whole.append(rest)
        elif len(rest):
            pending.append(rest)
            size += len(rest)
    if pending:
        whole.append(b"".join(pending) if len(pending) > 1 else pending[0])
    return whole
