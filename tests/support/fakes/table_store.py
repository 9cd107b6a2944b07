"""Keeps tables in memory: the fake of the table store, for tests of everything that stands in front of one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pravega_common.errors import (
    BadKeyVersion,
    BadOffset,
    InvalidArgument,
    KeyNotFound,
    NotATable,
    SegmentExists,
    TableNotEmpty,
    UnsupportedOperation,
)
from pravega_common.model.table_limits import (
    check_fixed_key_length,
    check_key_length,
    check_read,
    check_value_length,
    entry_wire_bytes,
    page_bytes_max,
    page_entries_max,
    update_entries_max,
)
from segment_service.contracts.attributes import (
    SEGMENT_TYPE,
    SEGMENT_TYPE_FIXED_KEY_TABLE,
    SEGMENT_TYPE_HASH_TABLE,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import append_bytes_max
from segment_service.contracts.table_store import (
    NO_VERSION,
    NOT_EXISTS,
    DeltaPage,
    EntriesPage,
    TableEntry,
    TableInfo,
    TableKey,
)
from tests.support.fakes.segment_store import InMemorySegmentStore

record_overhead_bytes: Final = 17
"""What a record adds to its key and value: version byte, two lengths, explicit version (TableStore of Pravega)."""

_Item = TypeVar("_Item", TableEntry, TableKey)


@dataclass
class _Table:
    name: str
    key_length: int
    length: int = 0
    live: dict[bytes, TableEntry] = field(default_factory=dict)
    log: list[tuple[int, bytes, TableEntry | None]] = field(default_factory=list)

    def add(self, key: bytes, value: bytes | None) -> int:
        version = self.length
        entry = None if value is None else TableEntry(key, value, version)
        self.log.append((version, key, entry))
        self.length += record_overhead_bytes + len(key) + len(value or b"")
        if entry is None:
            self.live.pop(key, None)
        else:
            self.live[key] = entry
        return version


class InMemoryTableStore:
    """``TableStore`` over dictionaries; table segments also exist in the segment store given, as empty segments."""

    def __init__(self, segments: InMemorySegmentStore) -> None:
        self._segments = segments
        self._tables: dict[str, _Table] = {}

    async def create_table(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None:
        check_fixed_key_length(segment, key_length)
        if segment in self._tables:
            raise SegmentExists(segment)
        kind = SEGMENT_TYPE_FIXED_KEY_TABLE if key_length else SEGMENT_TYPE_HASH_TABLE
        await self._segments.create_segment(
            segment, (AttributeUpdate(SEGMENT_TYPE, AttributeUpdateType.REPLACE, kind),)
        )
        self._tables[segment] = _Table(segment, key_length)

    async def delete_table(self, segment: str, must_be_empty: bool) -> None:
        table = await self._table(segment)
        if must_be_empty:
            if table.key_length:
                raise UnsupportedOperation(f"{segment}: a fixed-key table cannot be checked for being empty")
            if table.live:
                raise TableNotEmpty(segment)
        del self._tables[segment]
        await self._segments.delete(segment)

    async def table_info(self, segment: str) -> TableInfo:
        table = await self._table(segment)
        return TableInfo(segment, 0, table.length, 0 if table.key_length else len(table.live), table.key_length)

    async def put(self, segment: str, entries: Sequence[TableEntry], *, expected_length: int = -1) -> list[int]:
        table = await self._table(segment)
        for entry in entries:
            check_value_length(segment, len(entry.value))
        _check_size(segment, [len(entry.key) + len(entry.value) for entry in entries])
        self._check(table, entries, expected_length)
        return [table.add(entry.key, entry.value) for entry in entries]

    async def remove(self, segment: str, keys: Sequence[TableKey], *, expected_length: int = -1) -> None:
        table = await self._table(segment)
        _check_size(segment, [len(key.key) for key in keys])
        self._check(table, keys, expected_length)
        for key in keys:
            table.add(key.key, None)

    async def get(self, segment: str, keys: Sequence[bytes]) -> list[TableEntry]:
        table = await self._table(segment)
        for key in keys:
            check_key_length(segment, len(key))
        entries = [table.live.get(key, TableEntry(key, b"", NOT_EXISTS)) for key in keys]
        check_read(segment, len(keys), sum(entry_wire_bytes(len(entry.key), len(entry.value)) for entry in entries))
        return entries

    async def iterate(
        self, segment: str, count_max: int, continuation: bytes = b"", first_key: bytes = b"", last_key: bytes = b""
    ) -> EntriesPage:
        table = await self._table(segment)
        if table.key_length:
            if continuation:
                raise InvalidArgument("a continuation token is not supported by fixed-key tables; give a first key")
            chosen = [
                entry
                for key, entry in sorted(table.live.items())
                if key >= first_key and (not last_key or key <= last_key)
            ]
            return _page(chosen, count_max, lambda entry: entry.key)
        if first_key or last_key:
            raise InvalidArgument("a range of keys is not supported by hash tables")
        hashed = sorted((hashlib.sha256(key).digest(), entry) for key, entry in table.live.items())
        rest = [entry for digest, entry in hashed if digest > continuation]
        return _page(rest, count_max, lambda entry: hashlib.sha256(entry.key).digest())

    async def delta(self, segment: str, from_position: int, count_max: int) -> DeltaPage:
        table = await self._table(segment)
        if table.key_length:
            raise UnsupportedOperation(f"{segment}: a fixed-key table has no deltas")
        if from_position > table.length:
            raise InvalidArgument(f"position {from_position} exceeds the length {table.length} of {segment}")
        found: dict[bytes, TableEntry] = {}
        rest = [record for record in table.log if record[0] >= from_position]
        last_position = 0
        for position, key, entry in rest:
            if len(found) >= min(max(count_max, 1), page_entries_max):
                return DeltaPage(tuple(found.values()), False, False, position)
            found.pop(key, None)
            if entry is not None:
                found[key] = entry
            last_position = table.length
        return DeltaPage(tuple(found.values()), False, True, last_position)

    async def _table(self, segment: str) -> _Table:
        await self._segments.get_info(segment)
        table = self._tables.get(segment)
        if table is None:
            raise NotATable(segment, f"{segment} is not a table segment")
        return table

    def _check(self, table: _Table, items: Sequence[_Item], expected_length: int) -> None:
        if expected_length not in (-1, table.length):
            raise BadOffset(table.name, table.length, expected_length)
        for item in items:
            check_key_length(table.name, len(item.key))
            if table.key_length and len(item.key) != table.key_length:
                raise InvalidArgument(f"key of {len(item.key)} bytes in table {table.name} of {table.key_length}")
        for item in items:
            current = table.live.get(item.key)
            if item.version == NO_VERSION or item.version == (NOT_EXISTS if current is None else current.version):
                continue
            if current is None and not table.key_length:
                raise KeyNotFound(table.name)
            raise BadKeyVersion(table.name)


def _check_size(segment: str, lengths: Sequence[int]) -> None:
    size = sum(length + record_overhead_bytes for length in lengths)
    if len(lengths) > update_entries_max or size > append_bytes_max:
        raise InvalidArgument(
            f"{segment}: {len(lengths)} entries of {size} bytes; "
            f"the limits are {update_entries_max} entries and {append_bytes_max} bytes"
        )


def _page(entries: Sequence[TableEntry], count_max: int, token: Callable[[TableEntry], bytes]) -> EntriesPage:
    taken: list[TableEntry] = []
    size = 0
    for entry in entries:
        if len(taken) >= min(max(count_max, 1), page_entries_max) or size >= page_bytes_max:
            break
        taken.append(entry)
        size += len(entry.key) + len(entry.value)
    return EntriesPage(tuple(taken), token(taken[-1]) if taken else b"")
