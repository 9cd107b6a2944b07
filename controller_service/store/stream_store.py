"""Stores scopes and streams in a ``VersionedStore``.

Tables (names as the store sees them; the table-segment adapter puts them under ``_system/_tables/``):

* ``scopes``: scope name to ``ScopeRecord``; ``deletedStreams``: numbers of deleted streams (``deleted_streams.py``);
* per scope ``<scope>/streamsInScope.#.<scope id>``: stream name to ``StreamEntry`` (further lists beside it, and the
  index of tags, ``tag_index.py``);
* per stream ``<scope>/<stream>/metadata.#.<stream id>`` (keys in ``records.py``) and
  ``<scope>/<stream>/transactions.#.<stream id>`` (written by the transaction store), and from the first report of a
  writer ``<scope>/<stream>/writerMarks.#.<stream id>``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from controller_service.store.byte_bounded_cache import ByteBoundedCache
from controller_service.store.deleted_streams import DeletedStreams
from controller_service.store.records import (
    CONFIGURATION,
    CURRENT_EPOCH,
    STATE,
    Key,
    ScopeRecord,
    StreamEntry,
)
from controller_service.store.retained_streams import RetainedStreams
from controller_service.store.scope_counts import COUNTS_TABLE, Counted, refused_mark_stream, require_room
from controller_service.store.scope_store import (
    STREAMS_LIST,
    ScopeStore,
    list_table_name,
    page_size,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.tag_index import TAGS_TABLE, TagIndex, tag_chunks
from controller_service.store.versioned_store import ABSENT, Versioned, VersionedStore
from pravega_common.errors import (
    InvalidArgument,
    ScopeNotFound,
    SegmentNotFound,
    StreamNotFound,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.model.scope_quota import ScopeUse
from pravega_common.names import MARK_PREFIX, is_possible_name, scoped_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended

entries_cached_max: Final = 10_000
epochs_cached_bytes_max: Final = 64 * 1024 * 1024
"""Memory for the epoch records of all streams, as estimated by ``memory_per_stored_byte``."""
memory_per_stored_byte: Final = 2
"""A record in memory takes 1.7 times its bytes in the table."""
READING: Final[tuple[Key[Any], ...]] = (STATE, CONFIGURATION, CURRENT_EPOCH)
"""What nearly every operation needs: read together in one round trip."""


@dataclass(frozen=True, slots=True)
class ListedStream:
    """An entry of a scope's list as it was read: a change of it names its version."""

    name: str
    entry: StreamEntry
    table: str
    version: int


class StreamStore(ScopeStore):
    """Stateless but for caches of what never changes: ids of streams, and epoch records."""

    def __init__(self, tables: VersionedStore, clock: Clock, new_id: Callable[[], str], instance: str = "") -> None:
        """``instance`` names this run of a controller; a new id without it."""
        super().__init__(tables, clock, new_id)
        self.instance = instance or new_id()
        self._rounds = itertools.count(1)
        self._stream_ids: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._tags = TagIndex(tables, self.compare_and_set)
        self._deleted = DeletedStreams(tables, self.compare_and_set)
        self.retained = RetainedStreams(tables)
        self._epochs: ByteBoundedCache[tuple[str, str], tuple[Any, int]] = ByteBoundedCache(epochs_cached_bytes_max)

    async def create_system_tables(self) -> bool:
        is_new = await super().create_system_tables()
        if is_new:
            await self.retained.mark_complete()
        return is_new

    async def list_streams(
        self, scope: str, token: bytes = b"", count_max: int = page_size
    ) -> tuple[list[tuple[str, StreamEntry]], bytes]:
        """A page of streams and the token of the next, empty at the end; ``ScopeNotFound``."""
        page = await self.tables.scan(await self.list_table(scope, STREAMS_LIST), token, count_max)
        return [(name, decode(StreamEntry, found.value)) for name, found in page.entries], page.continuation

    # ---- tags --------------------------------------------------------------------------------------------------------

    async def list_streams_with_tag(self, scope: str, tag: str, token: bytes = b"") -> tuple[list[str], bytes]:
        """A page of names and the token of the next, empty at the end. Costs what the streams with the tag cost, except
        for the first call about a scope of a former version, which makes the index. ``ScopeNotFound``."""
        record = await self.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        if not record.tags_indexed:
            await self._index_tags(scope, record)
        entries, index = (list_table_name(scope, record.scope_id, kind) for kind in (STREAMS_LIST, TAGS_TABLE))
        number, after = _tag_token(token)
        while number < tag_chunks:
            chunk = await self._tags.chunk(index, tag, number)
            named = [name for name in chunk.names if name > after][:page_size] if chunk is not None else []
            if chunk is None or not named:
                number, after = number + 1, ""
                continue
            found = await self.tables.get_many(entries, named)
            lacking = {name for name, value in zip(named, found, strict=True) if not _has_tag(value, tag)}
            if lacking:
                await self._tags.remove(index, chunk, lacking)
            after = named[-1]
            if len(lacking) < len(named):
                return [name for name in named if name not in lacking], f"{number}/{after}".encode()
        return [], b""

    async def _index_tags(self, scope: str, record: ScopeRecord) -> None:
        """Put all streams of a scope into the index. Idempotent; new tags are put there by those who give them."""
        index = list_table_name(scope, record.scope_id, TAGS_TABLE)
        token = b""
        while True:
            streams, token = await self.list_streams(scope, token)
            for name, entry in streams:
                await self._tags.note(index, name, entry.tags)
            if not token:
                break

        await self.change_scope(scope, record.scope_id, lambda now: dataclasses.replace(now, tags_indexed=True))

    async def _forget_tags(self, scope: str, scope_id: str, stream: str, tags: Collection[str]) -> None:
        """Take a stream out of the index under tags that it lost. What a crash leaves, a listing takes out."""
        entries, index = (list_table_name(scope, scope_id, kind) for kind in (STREAMS_LIST, TAGS_TABLE))
        for tag in tags:
            chunk = await self._tags.chunk_of(index, tag, stream)
            if chunk is not None and not _has_tag(await self.tables.get(entries, stream), tag):
                await self._tags.remove(index, chunk, {stream})

    # ---- streams -----------------------------------------------------------------------------------------------------

    @staticmethod
    def metadata_table(scope: str, stream: str, stream_id: str) -> str:
        return f"{scope}/{stream}/metadata.#.{stream_id}"

    @staticmethod
    def transactions_table(scope: str, stream: str, stream_id: str) -> str:
        return f"{scope}/{stream}/transactions.#.{stream_id}"

    @staticmethod
    def marks_table(scope: str, stream: str, stream_id: str) -> str:
        return f"{scope}/{stream}/writerMarks.#.{stream_id}"

    async def open(self, scope: str, stream: str, *keys: Key[Any]) -> StreamContext:
        """A context with ``READING`` and ``keys`` read in one round trip; ``StreamNotFound``.

        A stream that is just being created or deleted may have lost or not yet got its records: then the first typed
        read raises ``StreamNotFound`` as well.
        """
        known = await self._remembered(scope, stream, *keys)
        if known is not None and (record := await known.read(STATE)) is not None and not record.is_deleting:
            return known
        # A remembered stream that has no state, or goes, may be gone: of a deleted one empty tables can be left.
        entry = await self.entry(scope, stream)
        if entry is None:
            self.forget(scope, stream)
            raise StreamNotFound.of(scope, stream)
        if known is None or known.stream_id != entry.stream_id:
            known = await self._context_of(scope, stream, entry.stream_id, *keys)
            self._keep(self._stream_ids, (scope, stream), entry.stream_id, entries_cached_max)
        return known

    async def _remembered(self, scope: str, stream: str, *keys: Key[Any]) -> StreamContext | None:
        """A context of the stream whose id is in memory, as ``open`` reads it; None if it has no tables any more."""
        cached = self._stream_ids.get((scope, stream))
        if cached is None:
            return None
        try:
            return await self._context_of(scope, stream, cached, *keys)
        except StreamNotFound:
            self.forget(scope, stream)
            return None

    async def _context_of(self, scope: str, stream: str, stream_id: str, *keys: Key[Any]) -> StreamContext:
        """A context of exactly this stream of the name; ``StreamNotFound`` once its tables are gone."""
        context = StreamContext(self, scope, stream, stream_id)
        await context.prefetch(*READING, *keys)
        return context

    async def update(
        self, scope: str, stream: str, change: Callable[[StreamContext], Awaitable[Any]], *keys: Key[Any]
    ) -> StreamContext:
        """Run ``change`` on a fresh context and flush it, again from the start while others get in between.

        ``change`` must look at the records it finds: after a lost answer it sees its own effect.
        """

        return await self._update(scope, stream, lambda: self.open(scope, stream, *keys), change)

    async def update_of(
        self,
        scope: str,
        stream: str,
        stream_id: str,
        change: Callable[[StreamContext], Awaitable[Any]],
        *keys: Key[Any],
    ) -> StreamContext:
        """``update`` of exactly this stream of the name; ``StreamNotFound`` once its tables are gone."""
        return await self._update(scope, stream, lambda: self._context_of(scope, stream, stream_id, *keys), change)

    async def _update(
        self,
        scope: str,
        stream: str,
        opened: Callable[[], Awaitable[StreamContext]],
        change: Callable[[StreamContext], Awaitable[Any]],
    ) -> StreamContext:
        async def change_and_flush() -> StreamContext:
            context = await opened()
            await change(context)
            try:
                await context.flush()
            except SegmentNotFound as error:
                self.forget(scope, stream)
                raise StreamNotFound.of(scope, stream) from error
            return context

        return await self.compare_and_set(f"stream {scope}/{stream}", change_and_flush)

    async def entry(self, scope: str, stream: str) -> StreamEntry | None:
        """The stream in its scope's list, from the store."""
        found = await self.entry_with_scope(scope, stream)
        return None if found is None else found[0]

    async def entry_with_scope(self, scope: str, stream: str) -> tuple[StreamEntry, ScopeRecord] | None:
        """The stream in its scope's list, and the record of the scope; None if either is missing."""
        found = await self._listed(scope, stream)
        return None if found is None else (found[0].entry, found[1])

    async def listed(self, scope: str, stream: str) -> ListedStream | None:
        """The stream in its scope's list with the version of its entry, for ``replace_entry``."""
        found = await self._listed(scope, stream)
        return None if found is None else found[0]

    async def _listed(self, scope: str, stream: str) -> tuple[ListedStream, ScopeRecord] | None:
        record = await self.scope(scope) if is_possible_name(stream) else None
        if record is None:
            return None
        table = list_table_name(scope, record.scope_id, STREAMS_LIST)
        try:
            found = await self.tables.get(table, stream)
        except SegmentNotFound:
            return None
        if found is None:
            return None
        return ListedStream(stream, decode(StreamEntry, found.value), table, found.version), record

    async def replace_entry(self, found: ListedStream, entry: StreamEntry) -> None:
        """Write an entry in the place of the one that was read, also an equal one, so that others who read it before
        change it no more. ``VersionConflict`` if it was written since."""
        await self.tables.put(found.table, found.name, encode(entry), found.version)

    async def add_entry(
        self, scope: str, stream: str, tags: tuple[str, ...], segments: int = 0, group_id: str = ""
    ) -> tuple[StreamEntry, bool]:
        """Put a stream on its scope's list, with its tables; the entry that stands, and whether this call put it there.

        Nothing is made, or left, for one that is being deleted: its entry says so, also if it is gone already. Nor are
        tables made for one that has its records.
        ``ScopeNotFound`` if the scope is missing or being deleted. ``segments``: those that a new stream begins with;
        ``QuotaExceeded`` if the scope has no room for them now. 0 for a stream that no quota counts. ``group_id``: the
        reader group that a new stream is made for.
        """
        record = await self.usable_scope(scope)
        if segments:
            await self._require_room(scope, stream, record, segments)
        entry = StreamEntry(self._new_id(), self.clock.wall_ms(), tags, group_id=group_id)
        async with self._index_of(scope, record) as index:
            await self._tags.note(index, stream, tags)
            standing, added = await self._put_entry(scope, stream, record, entry)
            if standing.deleting:
                return standing, False
            await self._tags.note(index, stream, standing.tags)
            # A stream with records has its tables: made again, they could come behind its deletion, and stay.
            if added or not await self._has_records(scope, stream, standing.stream_id):
                await self.create_stream_tables(scope, stream, standing.stream_id)
            # A deletion marks the entry, and deletes the tables then: made after that, they would be found.
            if await self._has_gone(scope, stream, record, standing.stream_id):
                # Those with records are its own to delete: it finds the segments by them.
                if not await self._has_records(scope, stream, standing.stream_id):
                    await self._delete_tables(scope, stream, standing.stream_id)
                await self._require_scope(scope, record)
                return dataclasses.replace(standing, deleting=True), added
        self._keep(self._stream_ids, (scope, stream), standing.stream_id, entries_cached_max)
        return standing, added

    async def _put_entry(
        self, scope: str, stream: str, record: ScopeRecord, entry: StreamEntry
    ) -> tuple[StreamEntry, bool]:
        """The entry that stands, and whether it is this one. ``ScopeNotFound`` if the scope is being deleted by now."""
        table = list_table_name(scope, record.scope_id, STREAMS_LIST)
        try:
            await self.tables.put(table, stream, encode(entry), ABSENT)
        except (VersionConflict, UnknownOutcome):
            found = await self.tables.get(table, stream)
            if found is None:
                raise
            standing = decode(StreamEntry, found.value)
            if standing != entry:
                return standing, False
        if not await self.still_usable(scope, record):
            await self.remove_if(table, stream, lambda value: decode(StreamEntry, value) == entry)
            raise ScopeNotFound.of(scope)
        return entry, True

    async def _has_records(self, scope: str, stream: str, stream_id: str) -> bool:
        try:
            return await self.tables.get(self.metadata_table(scope, stream, stream_id), STATE.name) is not None
        except SegmentNotFound:
            return False

    async def _has_gone(self, scope: str, stream: str, record: ScopeRecord, stream_id: str) -> bool:
        """Whether a stream that was on the list is deleted, or marked for that."""
        try:
            found = await self.tables.get(list_table_name(scope, record.scope_id, STREAMS_LIST), stream)
        except SegmentNotFound:
            return True
        now = None if found is None else decode(StreamEntry, found.value)
        return now is None or now.deleting or now.stream_id != stream_id

    @asynccontextmanager
    async def _index_of(self, scope: str, record: ScopeRecord) -> AsyncIterator[str]:
        """The table of the scope's index of tags, which who writes to it makes if it is missing; it is taken away again
        if the work inside finds that the scope is deleted: ``ScopeNotFound``."""
        index = list_table_name(scope, record.scope_id, TAGS_TABLE)
        try:
            yield index
        except (SegmentNotFound, ScopeNotFound) as error:
            try:
                await self._require_scope(scope, record)
            except ScopeNotFound:
                await self.tables.delete_table(index)
            raise ScopeNotFound.of(scope) from error

    async def _require_scope(self, scope: str, record: ScopeRecord) -> None:
        """``ScopeNotFound`` if the scope of the record is gone. A deletion removes the record and then the tables: it
        finds those that were made before this."""
        now = await self.scope(scope)
        if now is None or now.scope_id != record.scope_id:
            raise ScopeNotFound.of(scope)

    async def require_room(self, scope: str, stream: str, segments: int) -> None:
        """``QuotaExceeded`` if the stream is not there and the quota of its scope would not admit it."""
        record = await self.scope(scope)
        if record is not None:
            await self._require_room(scope, stream, record, segments)

    async def _require_room(self, scope: str, stream: str, record: ScopeRecord, segments: int) -> None:
        """Before anything of a new stream is stored: others may still take the room afterwards."""
        if record.quota is None or not record.is_counted:
            return
        entry = await self.entry(scope, stream)
        if entry is not None and not entry.deleting:
            return
        if stream.startswith(MARK_PREFIX):
            raise refused_mark_stream(scope, stream)
        use = await self.counts.total(list_table_name(scope, record.scope_id, COUNTS_TABLE))
        after = ScopeUse(use.streams + 1, use.segments + segments)
        require_room(record.quota, Counted("", scoped_name(scope, stream)), use, after)

    async def create_stream_tables(self, scope: str, stream: str, stream_id: str) -> None:
        await all_ended(self.tables.create_table(table) for table in self._tables_of(scope, stream, stream_id))

    async def _delete_tables(self, scope: str, stream: str, stream_id: str) -> None:
        await all_ended(self.tables.delete_table(table) for table in self._tables_of(scope, stream, stream_id))

    async def remove_stream(self, scope: str, stream: str, stream_id: str) -> None:
        """Delete a stream's tables and then its entry. Idempotent."""
        await self._change_entry(scope, stream, stream_id, lambda entry: dataclasses.replace(entry, deleting=True))
        await self._delete_tables(scope, stream, stream_id)
        # Last: its creator looks at the metadata afterwards.
        await self.tables.delete_table(self.marks_table(scope, stream, stream_id))
        self.forget(scope, stream)
        record = await self.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        if record.quota is not None:
            # Before the entry goes, without which nobody would repeat this.
            use = list_table_name(scope, record.scope_id, COUNTS_TABLE)
            await self.counts.release(use, Counted(stream_id, scoped_name(scope, stream)))
        table = list_table_name(scope, record.scope_id, STREAMS_LIST)
        removed: set[str] = set()

        def is_it(value: bytes) -> bool:
            entry = decode(StreamEntry, value)
            if entry.stream_id != stream_id:
                return False
            removed.update(entry.tags)
            return True

        await self.remove_if(table, stream, is_it)
        await self._forget_tags(scope, record.scope_id, stream, removed)

    async def set_tags(self, scope: str, stream: str, stream_id: str, tags: tuple[str, ...]) -> None:
        """Make the tags of the list entry those of the configuration. Idempotent."""
        record = await self.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        table = list_table_name(scope, record.scope_id, STREAMS_LIST)
        lost: set[str] = set()

        async def put_tags() -> None:
            found = await self.tables.get(table, stream)
            if found is None:
                return
            entry = decode(StreamEntry, found.value)
            if entry.stream_id == stream_id and entry.tags != tags:
                lost.update(entry.tags)
                changed = dataclasses.replace(entry, tags=tags)
                await self.tables.put(table, stream, encode(changed), found.version)

        async with self._index_of(scope, record) as index:
            await self._tags.note(index, stream, tags)
            await self.compare_and_set(f"entry of stream {scope}/{stream}", put_tags)
            await self._tags.note(index, stream, tags)
            if tags and await self._has_gone(scope, stream, record, stream_id):
                await self._require_scope(scope, record)
            await self._forget_tags(scope, record.scope_id, stream, lost.difference(tags))

    async def _change_entry(
        self, scope: str, stream: str, stream_id: str, change: Callable[[StreamEntry], StreamEntry]
    ) -> None:
        """Change the entry of this stream; another one of the name is left alone."""
        table = await self.list_table(scope, STREAMS_LIST)

        async def put() -> None:
            found = await self.tables.get(table, stream)
            entry = None if found is None else decode(StreamEntry, found.value)
            if found is not None and entry is not None and entry.stream_id == stream_id and change(entry) != entry:
                await self.tables.put(table, stream, encode(change(entry)), found.version)

        await self.compare_and_set(f"entry of stream {scope}/{stream}", put)

    def _tables_of(self, scope: str, stream: str, stream_id: str) -> tuple[str, ...]:
        return (
            self.metadata_table(scope, stream, stream_id),
            self.transactions_table(scope, stream, stream_id),
        )

    async def first_segment_number(self, scope: str, stream: str) -> int:
        """The number of the first segment of a stream to be created: above all that a deleted one of its name used."""
        return await self._deleted.first_segment_number(scope, stream)

    async def record_deleted(self, scope: str, stream: str, next_segment_number: int) -> None:
        """Before the stream's entry goes. Idempotent."""
        await self._deleted.record(scope, stream, next_segment_number)

    def new_round(self) -> str:
        """A mark that no run of any controller used before, for ``StateRecord.round``."""
        return f"{self.instance}/{next(self._rounds)}"

    # ---- caches ------------------------------------------------------------------------------------------------------

    def note_id(self, scope: str, stream: str, stream_id: str) -> None:
        """Remember the id of a stream that was just read from its scope's list: ``open`` need not look it up."""
        self._keep(self._stream_ids, (scope, stream), stream_id, entries_cached_max)

    def forget(self, scope: str, stream: str) -> None:
        self._stream_ids.pop((scope, stream), None)

    def cached_epoch(self, stream_id: str, key: str) -> tuple[Any, int] | None:
        return self._epochs.get((stream_id, key))

    def cache_epoch(self, stream_id: str, key: str, found: tuple[Any, int], stored_bytes: int) -> None:
        self._epochs.put((stream_id, key), found, stored_bytes * memory_per_stored_byte)

    @staticmethod
    def _keep(cache: OrderedDict[tuple[str, str], Any], key: tuple[str, str], value: Any, count_max: int) -> None:
        cache[key] = value
        if len(cache) > count_max:
            cache.popitem(last=False)


def _has_tag(entry: Versioned | None, tag: str) -> bool:
    return entry is not None and tag in decode(StreamEntry, entry.value).tags


def _tag_token(token: bytes) -> tuple[int, str]:
    """The chunk of a tag where a page starts, and the name that it starts behind; ``InvalidArgument``."""
    number, _, after = token.decode(errors="replace").partition("/")
    if token and not (number.isascii() and number.isdecimal()):
        raise InvalidArgument(f"{token[:40]!r} is no place in a list of tagged streams")
    return int(number or "0"), after
