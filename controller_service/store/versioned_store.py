"""Defines the controller's metadata store: named tables of versioned values, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ANY_VERSION: Final = -(1 << 63)
ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value with the version that a later compare-and-set must name."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """``expected``: the version found, ``ABSENT`` to insert, ``ANY_VERSION`` to overwrite."""

    key: str
    value: bytes
    expected: int


@dataclass(frozen=True, slots=True)
class Page:
    entries: tuple[tuple[str, Versioned], ...]
    continuation: bytes
    """Empty at the end."""


class VersionedStore(Protocol):
    """Tables by name (``scopes``, ``<scope>/<stream>/metadata``, ...), each with string keys.

    Two adapters: memory, and hash table segments in scope ``_system`` (names as in docs/wire-protocol.md 10.3).
    Errors: ``VersionConflict`` when an expectation does not hold (nothing was written), ``SegmentNotFound(table)``
    when the table does not exist, ``InvalidArgument`` for an empty key or what exceeds a limit of
    ``pravega_common/model/table_limits.py``, ``Unavailable``, ``UnknownOutcome`` (read again and decide).
    """

    async def create_table(self, table: str) -> None:
        """Idempotent."""
        ...

    async def delete_table(self, table: str) -> None:
        """Idempotent."""
        ...

    async def get(self, table: str, key: str) -> Versioned | None: ...

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        """In the order of the keys. As of one moment if all of them fit one reply."""
        ...

    async def put(self, table: str, key: str, value: bytes, expected: int) -> int:
        """Returns the new version, also of an equal value."""
        ...

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        """All or nothing, within one table."""
        ...

    async def remove(self, table: str, key: str, expected: int = ANY_VERSION) -> None:
        """Removing an absent key unconditionally succeeds."""
        ...

    async def remove_many(self, table: str, keys: Sequence[str]) -> None:
        """Unconditional; absent keys are no error."""
        ...

    async def scan(self, table: str, continuation: bytes = b"", count_max: int = 100) -> Page:
        """All entries, in arbitrary but stable order; entries written meanwhile may or may not appear."""
        ...
