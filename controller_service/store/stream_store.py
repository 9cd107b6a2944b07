"""Scopes and streams over a ``VersionedStore``.

Tables (names as the store sees them; the table-segment adapter puts them under ``_system/_tables/``):

* ``scopes``: scope name to ``ScopeRecord``; ``deletedStreams``: ``scope/stream`` to ``DeletedStream``;
* per scope ``<scope>/streamsInScope.#.<scope id>``: stream name to ``StreamEntry`` (further lists beside it);
* per stream ``<scope>/<stream>/metadata.#.<stream id>`` (keys in ``records.py``) and
  ``<scope>/<stream>/transactions.#.<stream id>`` (written by the transaction store).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller_service.errors import NoSuchScope, NoSuchStream
from controller_service.store.records import (
    CONFIGURATION,
    CURRENT_EPOCH,
    STATE,
    DeletedStream,
    Key,
    ScopeRecord,
    StreamEntry,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.versioned_store import ABSENT, ANY_VERSION, VersionedStore
from pravega_common.errors import NoSuchSegment, UnknownOutcome, VersionConflict
from pravega_common.names import SYSTEM_SCOPE, scoped_name
from pravega_common.runtime.clock import Clock

cas_attempts_max: Final = 20
"""Tries of one compare-and-set operation before its conflict is reported."""
cas_pause_s: Final = 0.01
"""Wait after a lost compare-and-set, times the number of losses."""
entries_cached_max: Final = 10_000
epochs_cached_max: Final = 10_000
page_size: Final = 1_000
"""Names on one page of a listing."""

SCOPES_TABLE: Final = "scopes"
DELETED_STREAMS_TABLE: Final = "deletedStreams"
STREAMS_LIST: Final = "streamsInScope"
KEY_VALUE_TABLES_LIST: Final = "kvTablesInScope"
READER_GROUPS_LIST: Final = "readerGroupsInScope"
SCOPE_LISTS: Final = (STREAMS_LIST, KEY_VALUE_TABLES_LIST, READER_GROUPS_LIST)
READING: Final[tuple[Key[Any], ...]] = (STATE, CONFIGURATION, CURRENT_EPOCH)
"""What nearly every operation needs: read together in one round trip."""


class StreamStore:
    """Stateless but for caches of what never changes: ids of scopes and streams, and epoch records."""

    def __init__(self, tables: VersionedStore, clock: Clock, new_id: Callable[[], str]) -> None:
        """``new_id`` gives ids that are never given twice in the cluster's life, such as a random UUID's hex."""
        self.tables = tables
        self.clock = clock
        self._new_id = new_id
        self._stream_ids: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._epochs: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()

    async def create_system_tables(self) -> None:
        """The tables that every cluster has, and scope ``_system``. Idempotent."""
        await asyncio.gather(*(self.tables.create_table(table) for table in (SCOPES_TABLE, DELETED_STREAMS_TABLE)))
        await self.create_scope(SYSTEM_SCOPE)

    # ---- scopes ------------------------------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """False if it exists already (also while it is being deleted)."""
        if await self.tables.get(SCOPES_TABLE, scope) is not None:
            return False
        record = ScopeRecord(self._new_id(), self.clock.wall_ms())
        await asyncio.gather(
            *(self.tables.create_table(self._list_table(scope, record.scope_id, kind)) for kind in SCOPE_LISTS)
        )
        try:
            await self.tables.put(SCOPES_TABLE, scope, encode(record), ABSENT)
        except VersionConflict:
            await self._delete_scope_tables(scope, record.scope_id)
            return False
        return True

    async def scope(self, scope: str) -> ScopeRecord | None:
        found = await self.tables.get(SCOPES_TABLE, scope)
        return None if found is None else decode(ScopeRecord, found.value)

    async def usable_scope(self, scope: str) -> ScopeRecord:
        """``NoSuchScope`` if the scope is missing or being deleted."""
        record = await self.scope(scope)
        if record is None or record.deleting:
            raise NoSuchScope(scope)
        return record

    async def mark_scope(self, scope: str, deleting: bool) -> ScopeRecord | None:
        """Close a scope for new members, or open it again. None if it does not exist."""
        for attempt in range(cas_attempts_max):
            found = await self.tables.get(SCOPES_TABLE, scope)
            if found is None:
                return None
            record = decode(ScopeRecord, found.value)
            if record.deleting is deleting:
                return record
            changed = ScopeRecord(record.scope_id, record.created_ms, deleting)
            try:
                await self.tables.put(SCOPES_TABLE, scope, encode(changed), found.version)
                return changed
            except (VersionConflict, UnknownOutcome):
                await self.pause(attempt)
        raise VersionConflict(f"scope {scope}: changed by others {cas_attempts_max} times in a row")

    async def remove_scope(self, scope: str, record: ScopeRecord) -> None:
        """Remove an empty, closed scope. Idempotent."""
        await self.tables.remove(SCOPES_TABLE, scope)
        await self._delete_scope_tables(scope, record.scope_id)

    async def delete_empty_scope(self, scope: str) -> bool:
        """False if the scope has members, and is as it was then; ``NoSuchScope``."""
        before = await self.scope(scope)
        record = None if before is None else await self.mark_scope(scope, deleting=True)
        if before is None or record is None:
            raise NoSuchScope(scope)
        if await self.scope_is_empty(scope, record):
            await self.remove_scope(scope, record)
            return True
        # A scope that is being deleted with its members stays closed.
        if not before.deleting:
            await self.mark_scope(scope, deleting=False)
        return False

    async def scope_is_empty(self, scope: str, record: ScopeRecord) -> bool:
        pages = await asyncio.gather(
            *(self.tables.scan(self._list_table(scope, record.scope_id, kind), count_max=1) for kind in SCOPE_LISTS)
        )
        return not any(page.entries for page in pages)

    async def _delete_scope_tables(self, scope: str, scope_id: str) -> None:
        await asyncio.gather(
            *(self.tables.delete_table(self._list_table(scope, scope_id, kind)) for kind in SCOPE_LISTS)
        )

    async def list_scopes(self, token: bytes = b"") -> tuple[list[str], bytes]:
        """A page of names and the token of the next; the token is empty after the last page."""
        page = await self.tables.scan(SCOPES_TABLE, token, page_size)
        return [name for name, _ in page.entries], page.continuation

    # ---- lists of a scope --------------------------------------------------------------------------------------------

    @staticmethod
    def _list_table(scope: str, scope_id: str, kind: str) -> str:
        return f"{scope}/{kind}.#.{scope_id}"

    async def list_table(self, scope: str, kind: str) -> str:
        """The table of one of ``SCOPE_LISTS``; ``NoSuchScope`` if the scope is missing."""
        record = await self.scope(scope)
        if record is None:
            raise NoSuchScope(scope)
        return self._list_table(scope, record.scope_id, kind)

    async def list_streams(self, scope: str, token: bytes = b"") -> tuple[list[tuple[str, StreamEntry]], bytes]:
        page = await self.tables.scan(await self.list_table(scope, STREAMS_LIST), token, page_size)
        return [(name, decode(StreamEntry, found.value)) for name, found in page.entries], page.continuation

    # ---- streams -----------------------------------------------------------------------------------------------------

    @staticmethod
    def metadata_table(scope: str, stream: str, stream_id: str) -> str:
        return f"{scope}/{stream}/metadata.#.{stream_id}"

    @staticmethod
    def transactions_table(scope: str, stream: str, stream_id: str) -> str:
        return f"{scope}/{stream}/transactions.#.{stream_id}"

    async def open(self, scope: str, stream: str, *keys: Key[Any]) -> StreamContext:
        """A context with ``READING`` and ``keys`` read in one round trip; ``NoSuchStream`` if there is no such stream.

        A stream that is just being created or deleted may have lost or not yet got its records: then the first typed
        read raises ``NoSuchStream`` as well.
        """
        cached = self._stream_ids.get((scope, stream))
        if cached is not None:
            context = StreamContext(self, scope, stream, cached)
            try:
                await context.prefetch(*READING, *keys)
                return context
            except NoSuchStream:
                self.forget(scope, stream)
        entry = await self.entry(scope, stream)
        if entry is None:
            raise NoSuchStream(scope, stream)
        context = StreamContext(self, scope, stream, entry.stream_id)
        await context.prefetch(*READING, *keys)
        self._keep(self._stream_ids, (scope, stream), entry.stream_id, entries_cached_max)
        return context

    async def update(
        self, scope: str, stream: str, change: Callable[[StreamContext], Awaitable[Any]], *keys: Key[Any]
    ) -> StreamContext:
        """Run ``change`` on a fresh context and flush it, again from the start while others get in between.

        ``change`` must look at the records it finds: after a lost answer it sees its own effect.
        """
        for attempt in range(cas_attempts_max):
            context = await self.open(scope, stream, *keys)
            await change(context)
            try:
                await context.flush()
                return context
            except NoSuchSegment as error:
                self.forget(scope, stream)
                raise NoSuchStream(scope, stream) from error
            except (VersionConflict, UnknownOutcome):
                await self.pause(attempt)
        raise VersionConflict(f"stream {scope}/{stream}: changed by others {cas_attempts_max} times in a row")

    async def pause(self, attempt: int) -> None:
        """Wait after the given lost attempt (from 0)."""
        await self.clock.sleep(cas_pause_s * (attempt + 1))

    async def entry(self, scope: str, stream: str) -> StreamEntry | None:
        """The stream in its scope's list, from the store."""
        try:
            found = await self.tables.get(await self.list_table(scope, STREAMS_LIST), stream)
        except (NoSuchScope, NoSuchSegment):
            return None
        return None if found is None else decode(StreamEntry, found.value)

    async def add_entry(self, scope: str, stream: str, tags: tuple[str, ...]) -> tuple[StreamEntry, bool]:
        """Put a stream on its scope's list, with its tables; the entry that stands, and whether this call put it there.

        ``NoSuchScope`` if the scope is missing or being deleted.
        """
        record = await self.usable_scope(scope)
        table = self._list_table(scope, record.scope_id, STREAMS_LIST)
        entry = StreamEntry(self._new_id(), self.clock.wall_ms(), tags)
        added = True
        try:
            await self.tables.put(table, stream, encode(entry), ABSENT)
        except (VersionConflict, UnknownOutcome):
            found = await self.tables.get(table, stream)
            if found is None:
                raise
            standing = decode(StreamEntry, found.value)
            added = standing == entry
            entry = standing
        except NoSuchSegment as error:
            raise NoSuchScope(scope) from error
        # Whoever deletes the scope closes it first and looks for members afterwards; this looks in the other order.
        if added and not await self._still_usable(scope, record):
            await self.tables.remove(table, stream)
            raise NoSuchScope(scope)
        await self.create_stream_tables(scope, stream, entry.stream_id)
        return entry, added

    async def _still_usable(self, scope: str, record: ScopeRecord) -> bool:
        return await self.scope(scope) == record

    async def create_stream_tables(self, scope: str, stream: str, stream_id: str) -> None:
        await asyncio.gather(*(self.tables.create_table(table) for table in self._tables_of(scope, stream, stream_id)))

    async def remove_stream(self, scope: str, stream: str, stream_id: str) -> None:
        """Delete a stream's tables and then its entry. Idempotent."""
        await asyncio.gather(*(self.tables.delete_table(table) for table in self._tables_of(scope, stream, stream_id)))
        self.forget(scope, stream)
        entry = await self.entry(scope, stream)
        if entry is not None and entry.stream_id == stream_id:
            await self.tables.remove(await self.list_table(scope, STREAMS_LIST), stream)

    async def set_tags(self, scope: str, stream: str, stream_id: str, tags: tuple[str, ...]) -> None:
        """Make the tags of the list entry those of the configuration. Idempotent."""
        table = await self.list_table(scope, STREAMS_LIST)
        for attempt in range(cas_attempts_max):
            found = await self.tables.get(table, stream)
            entry = None if found is None else decode(StreamEntry, found.value)
            if found is None or entry is None or entry.stream_id != stream_id or entry.tags == tags:
                return
            try:
                changed = StreamEntry(stream_id, entry.created_ms, tags)
                await self.tables.put(table, stream, encode(changed), found.version)
                return
            except (VersionConflict, UnknownOutcome):
                await self.pause(attempt)

    def _tables_of(self, scope: str, stream: str, stream_id: str) -> tuple[str, ...]:
        return (
            self.metadata_table(scope, stream, stream_id),
            self.transactions_table(scope, stream, stream_id),
        )

    async def first_segment_number(self, scope: str, stream: str) -> int:
        """The number of the first segment of a stream to be created: 0, or what follows a deleted one's last."""
        found = await self.tables.get(DELETED_STREAMS_TABLE, scoped_name(scope, stream))
        return 0 if found is None else decode(DeletedStream, found.value).next_segment_number

    async def record_deleted(self, scope: str, stream: str, next_segment_number: int) -> None:
        known = await self.first_segment_number(scope, stream)
        if next_segment_number > known:
            record = encode(DeletedStream(next_segment_number))
            await self.tables.put(DELETED_STREAMS_TABLE, scoped_name(scope, stream), record, ANY_VERSION)

    # ---- caches ------------------------------------------------------------------------------------------------------

    def forget(self, scope: str, stream: str) -> None:
        self._stream_ids.pop((scope, stream), None)

    def cached_epoch(self, stream_id: str, key: str) -> tuple[Any, int] | None:
        return self._epochs.get((stream_id, key))

    def cache_epoch(self, stream_id: str, key: str, found: tuple[Any, int]) -> None:
        self._keep(self._epochs, (stream_id, key), found, epochs_cached_max)

    @staticmethod
    def _keep(cache: OrderedDict[tuple[str, str], Any], key: tuple[str, str], value: Any, count_max: int) -> None:
        cache[key] = value
        if len(cache) > count_max:
            cache.popitem(last=False)
