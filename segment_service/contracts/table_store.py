"""Defines table segments: keys and values over a segment's append path, with conditional updates by version.

Semantics: docs/wire-protocol.md 2.2 (`TableStore` of pravega/pravega).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

NO_VERSION: Final = -(1 << 63)
"""Unconditional."""
NOT_EXISTS: Final = -1
"""The key must be absent; as a result: the key is absent."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A key with its value; ``version`` is the offset of its record (≥ 0), or one of the two constants above."""

    key: bytes
    value: bytes
    version: int = NO_VERSION


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key with the version that it is expected to have."""

    key: bytes
    version: int = NO_VERSION


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table as it is now."""

    name: str
    start_offset: int
    length: int
    entry_count: int
    key_length: int
    """0 for a hash table."""


@dataclass(frozen=True, slots=True)
class EntriesPage:
    """A part of an iteration."""

    entries: tuple[TableEntry, ...]
    continuation: bytes
    """Opaque, not empty whenever entries were returned from a hash table; pass it on to get the next page."""


@dataclass(frozen=True, slots=True)
class DeltaPage:
    """Live entries changed in a stretch of the table's log, collapsed by key."""

    entries: tuple[TableEntry, ...]
    should_clear: bool
    reached_end: bool
    last_position: int


class TableStore(Protocol):
    """Errors beside those of ``SegmentStore``: ``NotATable``, ``KeyNotFound``, ``BadKeyVersion``, ``TableNotEmpty``,
    ``BadOffset`` (a given ``expected_length`` is not the table's), ``InvalidArgument`` (a limit of
    ``pravega_common/model/table_limits.py``; nothing was done)."""

    async def create_table(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None: ...

    async def delete_table(self, segment: str, must_be_empty: bool) -> None: ...

    async def table_info(self, segment: str) -> TableInfo: ...

    async def put(self, segment: str, entries: Sequence[TableEntry], *, expected_length: int = -1) -> list[int]:
        """All or nothing; the new versions in request order. Conditions are checked before anything is written."""
        ...

    async def remove(self, segment: str, keys: Sequence[TableKey], *, expected_length: int = -1) -> None: ...

    async def get(self, segment: str, keys: Sequence[bytes]) -> list[TableEntry]:
        """One entry for each key in order; an absent key has ``NOT_EXISTS`` and an empty value.

        ``InvalidArgument``, before any value is fetched, for too many keys or an answer that would be too large.
        """
        ...

    async def iterate(
        self, segment: str, count_max: int, continuation: bytes = b"", first_key: bytes = b"", last_key: bytes = b""
    ) -> EntriesPage:
        """A page of entries; ``first_key``/``last_key`` (inclusive) only on fixed-key tables, ordered by key there.

        A page ends at ``count_max``, or at the limits of a page; only an empty one says that nothing follows.
        """
        ...

    async def delta(self, segment: str, from_position: int, count_max: int) -> DeltaPage:
        """A page of what was put since ``from_position``: 0, or the ``last_position`` of a page before.

        Another position is ``InvalidArgument``, unless a store can tell what lies behind it.
        """
        ...
