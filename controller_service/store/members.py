"""Stores key-value tables and reader groups, one record each, in a list of their scope."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from controller_service.store.scope_store import (
    KEY_VALUE_TABLES_LIST,
    READER_GROUPS_LIST,
    page_size,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ABSENT
from pravega_common.errors import ScopeNotFound, SegmentNotFound, UnknownOutcome, VersionConflict
from pravega_common.invariants import unreachable
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.names import is_possible_name


class ScopeMemberState(enum.StrEnum):
    CREATING = "creating"
    ACTIVE = "active"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class KeyValueTableRecord:
    table_id: str
    created_ms: int
    state: ScopeMemberState
    partition_count: int
    primary_key_length: int
    """Bytes, as the secondary key's length."""
    secondary_key_length: int
    rollover_size_bytes: int = 0
    first_segment_number: int | None = 0
    """None until it is chosen, behind those of deleted tables of the name; former versions began with 0 each time."""
    record_version: ClassVar[int] = 2

    @property
    def written_version(self) -> int:
        return 2 if self.first_segment_number else 1

    @property
    def segment_numbers(self) -> range:
        """One for each partition, once the first is chosen."""
        first = self.first_segment_number
        if first is None:
            unreachable("a key-value table has no segment numbers yet", table_id=self.table_id)
        return range(first, first + self.partition_count)


@dataclass(frozen=True, slots=True)
class ReaderGroupConfig:
    refresh_ms: int
    checkpoint_ms: int
    """-1: no automatic checkpoints."""
    outstanding_checkpoints_max: int
    retention: ReaderGroupRetention
    starting: dict[str, dict[int, int]]
    """``scope/stream`` to stream cut; an empty cut is unbounded."""
    ending: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReaderGroupRecord:
    group_id: str
    """UUID in its text form."""
    state: ScopeMemberState
    generation: int
    config: ReaderGroupConfig
    unsubscribe: tuple[str, ...] = ()
    """Streams that an update left and that may still know the group as a subscriber."""


M = TypeVar("M", KeyValueTableRecord, ReaderGroupRecord)


@dataclass(frozen=True, slots=True)
class FoundMember(Generic[M]):
    """A record as it was read or written: a change of this very one names its version."""

    record: M
    table: str
    version: int


class ScopeMembers(Generic[M]):
    """One kind of member, by scope and name."""

    def __init__(self, store: StreamStore, kind: str, record: type[M]) -> None:
        self._store = store
        self._kind = kind
        self._record: type[M] = record

    async def get(self, scope: str, name: str) -> M | None:
        """None also if the scope does not exist, and for a name that no table takes as a key."""
        found = await self.find(scope, name)
        return None if found is None else found.record

    async def find(self, scope: str, name: str) -> FoundMember[M] | None:
        """As ``get``, with what ``replace`` and ``discard`` need."""
        if not is_possible_name(name):
            return None
        try:
            table = await self._store.list_table(scope, self._kind)
            found = await self._store.tables.get(table, name)
        except (ScopeNotFound, SegmentNotFound):
            return None
        return None if found is None else FoundMember(decode(self._record, found.value), table, found.version)

    async def add(self, scope: str, name: str, record: M) -> tuple[M, bool]:
        """Insert a record; returns the one that stands, and whether it is this one.

        ``ScopeNotFound`` if the scope is missing or being deleted.
        """
        usable = await self._store.usable_scope(scope)
        table = await self._store.list_table(scope, self._kind)
        try:
            await self._store.tables.put(table, name, encode(record), ABSENT)
        except (VersionConflict, UnknownOutcome):
            standing = await self.get(scope, name)
            if standing is None:
                raise
            return standing, standing == record
        if not await self._store.still_usable(scope, usable):
            await self.remove(scope, name, record)
            raise ScopeNotFound.of(scope)
        return record, True

    async def change(self, scope: str, name: str, change: Callable[[M], M]) -> M | None:
        """Replace the record by ``change`` of it, by compare-and-set; the record then, None if it does not exist."""
        found = await self.changed(scope, name, change)
        return None if found is None else found.record

    async def changed(self, scope: str, name: str, change: Callable[[M], M]) -> FoundMember[M] | None:
        """As ``change``, with what ``replace`` and ``discard`` need."""
        table = await self._store.list_table(scope, self._kind)
        if not is_possible_name(name):
            return None

        async def replace() -> FoundMember[M] | None:
            found = await self._store.tables.get(table, name)
            if found is None:
                return None
            old: M = decode(self._record, found.value)
            new, version = change(old), found.version
            if new != old:
                version = await self._store.tables.put(table, name, encode(new), version)
            return FoundMember(new, table, version)

        return await self._store.compare_and_set(f"{self._kind} {scope}/{name}", replace)

    async def replace(self, name: str, found: FoundMember[M], record: M) -> None:
        """``VersionConflict`` if the record was changed since, or is one that was made since, equal as it may be."""
        await self._store.tables.put(found.table, name, encode(record), found.version)

    async def discard(self, name: str, found: FoundMember[M]) -> None:
        """Remove the record; ``VersionConflict`` as of ``replace``, also if it is gone."""
        await self._store.tables.remove(found.table, name, found.version)

    async def remove(self, scope: str, name: str, record: M) -> None:
        """Idempotent; another record under the same name is left alone."""
        try:
            table = await self._store.list_table(scope, self._kind)
            await self._store.remove_if(table, name, lambda value: decode(self._record, value) == record)
        except (ScopeNotFound, SegmentNotFound):
            return

    async def page(
        self, scope: str, token: bytes = b"", count_max: int = page_size
    ) -> tuple[list[tuple[str, M]], bytes]:
        """Some members and the token of the next page, empty at the end; ``ScopeNotFound``."""
        try:
            page = await self._store.tables.scan(await self._store.list_table(scope, self._kind), token, count_max)
        except SegmentNotFound as error:
            raise ScopeNotFound.of(scope) from error
        return [(name, decode(self._record, found.value)) for name, found in page.entries], page.continuation


def key_value_tables(store: StreamStore) -> ScopeMembers[KeyValueTableRecord]:
    return ScopeMembers(store, KEY_VALUE_TABLES_LIST, KeyValueTableRecord)


def reader_groups(store: StreamStore) -> ScopeMembers[ReaderGroupRecord]:
    return ScopeMembers(store, READER_GROUPS_LIST, ReaderGroupRecord)


group_stream_rollover_bytes: Final = 4 * 1024 * 1024
"""Rollover size of the stream that carries a reader group's state (docs/controller-api.md 7)."""
