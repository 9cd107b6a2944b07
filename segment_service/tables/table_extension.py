"""Implements ``contracts/table_store.py`` on top of any ``SegmentStore``."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from pravega_common.errors import (
    BadOffset,
    InvalidArgument,
    NotATable,
    SegmentNotFound,
    SegmentTruncated,
    TableNotEmpty,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.table_limits import (
    check_fixed_key_length,
    check_read,
    check_value_length,
    entry_wire_bytes,
    page_bytes_max,
    page_entries_max,
    update_entries_max,
)
from pravega_common.runtime.byte_gate import ByteGate
from segment_service.contracts.attributes import (
    ROLLOVER_SIZE,
    SEGMENT_TYPE,
    SEGMENT_TYPE_FIXED_KEY_TABLE,
    SEGMENT_TYPE_HASH_TABLE,
    TABLE_INDEX_IN_TIER2,
    TABLE_KEY_LENGTH,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import SegmentProperties, SegmentStore, append_bytes_max
from segment_service.contracts.table_maps import TableMapSource
from segment_service.contracts.table_store import (
    NO_VERSION,
    NOT_EXISTS,
    DeltaPage,
    EntriesPage,
    TableEntry,
    TableInfo,
    TableKey,
)
from segment_service.tables.compactor import compact
from segment_service.tables.delta import DeltaSelection, select_delta, select_delta_from_log
from segment_service.tables.fixed_key_table import FixedKeyTableLayout
from segment_service.tables.hash_table import HashTableLayout
from segment_service.tables.key_index import InlineBudget, KeyIndex, Slot, inline_bytes_max
from segment_service.tables.layout import TableLayout
from segment_service.tables.log_reader import read_log, read_values
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.paging import Pager
from segment_service.tables.table_segment import TableIndex, TableSegment, Update
from segment_service.tables.writer import append_batch

P = ParamSpec("P")
T = TypeVar("T")

tables_loaded_max: Final = 4_096
"""Tables whose index is in memory; beyond it the longest unused idle one is forgotten."""
table_key_bytes_default: Final = 512 * 1024 * 1024
"""Memory of the keys of all tables, some 1.4 million; beyond it the longest unused idle tables are forgotten."""
unused_looks_max: Final = 64
"""Tables that are looked at to find one that is idle."""
update_attempts_max: Final = 64
"""Attempts of an update that others overtake, before it gives up as ``Unavailable``."""
open_attempts_max: Final = 64
"""How often a call reads the end of a log that somebody else goes on writing, before it gives up as ``Unavailable``."""
read_attempts_max: Final = 8
"""Attempts of a read whose values the compactor moves away."""
fetch_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of values that all requests of one extension fetch from segments at a time; the next request waits."""


def _keeps_its_table(
    call: Callable[Concatenate[TableExtension, str, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[TableExtension, str, P], Coroutine[Any, Any, T]]:
    """A call whose table is not forgotten while it is under way, however much room others need: it would read the log
    again and again."""

    @functools.wraps(call)
    async def counted(self: TableExtension, segment: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        users = self._users
        users[segment] = users.get(segment, 0) + 1
        try:
            return await call(self, segment, *args, **kwargs)
        finally:
            users[segment] -= 1
            if not users[segment]:
                del users[segment]

    return counted


class TableExtension:
    """All tables of one store (or container); one instance at a time writes to a table (see the README).

    What is known of a table is compared with the segment's id and length at every call, so a container that restarts,
    moves away and comes back, or a table that is deleted and created again, needs no notification: the missing part of
    the log is read, or all of it. Only the memory of a container's tables goes with ``container_gone``.
    """

    def __init__(
        self,
        store: SegmentStore,
        inline_value_bytes_max: int = inline_bytes_max,
        maps: TableMapSource | None = None,
        key_bytes_max: int = table_key_bytes_default,
    ) -> None:
        """``maps``: where the indexes of large tables go; ``None`` keeps all in memory. ``key_bytes_max``: memory of
        the keys of all tables."""
        self._store = store
        self._budget = InlineBudget(inline_value_bytes_max)
        self._maps = maps
        self._pager = None if maps is None else Pager(store, maps, self._budget)
        self._fetches = ByteGate(fetch_bytes_max)
        self.key_bytes_max = key_bytes_max
        self.key_bytes = 0
        """Memory of the keys of all tables, as of the last use of each."""
        self.forgotten_total = 0
        """Tables that were forgotten to make room for others: each is read again when it is used."""
        self._tables: OrderedDict[str, TableSegment] = OrderedDict()
        self._users: dict[str, int] = {}
        """The calls under way, by the segments of their tables."""
        self._tables_of: dict[object, dict[TableSegment, None]] = {}
        """The same tables by their containers."""

    # --- tables ------------------------------------------------------------------------------------------------------

    async def create_table(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None:
        check_fixed_key_length(segment, key_length)
        values = {SEGMENT_TYPE: SEGMENT_TYPE_FIXED_KEY_TABLE if key_length else SEGMENT_TYPE_HASH_TABLE}
        if key_length:
            values[TABLE_KEY_LENGTH] = key_length
        if rollover_size_bytes > 0:
            values[ROLLOVER_SIZE] = rollover_size_bytes
        updates = [AttributeUpdate(name, AttributeUpdateType.REPLACE, value) for name, value in values.items()]
        await self._store.create_segment(segment, updates)

    @_keeps_its_table
    async def delete_table(self, segment: str, must_be_empty: bool) -> None:
        if not must_be_empty:
            # What it holds is not read: a damaged table could never be deleted.
            _layout_of(await self._store.get_info(segment))
            await self._store.delete(segment)
            if (known := self._tables.get(segment)) is not None:
                self._forget(known)
            return
        for _ in range(open_attempts_max):
            table, _ = await self._open(segment)
            if not table.layout.supports_delete_if_empty:
                raise UnsupportedOperation(
                    f"{segment}: a fixed-key table cannot be deleted on condition of being empty"
                )
            async with table.lock:
                table.is_stale = True
                await self._catch_up(table)
                if table.is_stale:
                    continue  # it was forgotten, or not read to its end: that says nothing of what is there
                if len(table.index):
                    raise TableNotEmpty(segment)
                table.is_stale = True
                await self._store.delete(segment)
                self._forget(table)
                return
        raise Unavailable(f"{segment}: the table's log changed {open_attempts_max} times before it was deleted")

    @_keeps_its_table
    async def table_info(self, segment: str) -> TableInfo:
        table, info = await self._open(segment)
        return TableInfo(segment, info.start_offset, info.length, len(table.index), table.layout.key_length)

    # --- updates -----------------------------------------------------------------------------------------------------

    async def put(self, segment: str, entries: Sequence[TableEntry], *, expected_length: int = -1) -> list[int]:
        for entry in entries:
            check_value_length(segment, len(entry.value))
        conditions = [TableKey(entry.key, entry.version) for entry in entries if entry.version != NO_VERSION]
        updates = [Update(entry.key, entry.value) for entry in entries]
        return await self._update(segment, updates, conditions, expected_length)

    async def remove(self, segment: str, keys: Sequence[TableKey], *, expected_length: int = -1) -> None:
        conditions = [key for key in keys if key.version != NO_VERSION]
        await self._update(segment, [Update(key.key, None) for key in keys], conditions, expected_length)

    @_keeps_its_table
    async def _update(
        self, segment: str, updates: list[Update], conditions: list[TableKey], expected_length: int
    ) -> list[int]:
        size = sum(update.size for update in updates)
        if len(updates) > update_entries_max or size > append_bytes_max:
            raise InvalidArgument(
                f"{segment}: {len(updates)} entries of {size} bytes in one request; "
                f"the limits are {update_entries_max} entries and {append_bytes_max} bytes"
            )
        for _ in range(update_attempts_max):
            table, _ = await self._open(segment)
            for update in updates:
                table.layout.check_key(segment, update.key)
            keys = [update.key for update in updates]
            if not table.index.is_resident(keys):
                await table.index.bring(keys)
                continue
            blocker = table.check_conditions(conditions)
            if blocker is None and expected_length not in (-1, table.tail):
                if not table.pending:
                    raise BadOffset(segment, table.tail, expected_length)
                blocker = table.pending[-1]
            if blocker is not None:
                await blocker.settled()
                continue
            if not updates:
                return []
            if self._pager is not None and self._pager.is_full(table):
                await self._pager.make_room(table)
                continue
            batch = append_batch(self._store, table, updates)
            try:
                await asyncio.shield(batch.done)
            except BadOffset:
                continue
            if table.wants_compaction or table.cuts:
                await compact(self._store, table)
            if self._pager is not None:
                self._pager.flush_if_due(table)
            if self._is_too_large(table):
                await self._page_out(table)
            return batch.versions()
        raise Unavailable(f"{segment}: {update_attempts_max} attempts to update met other updates")

    # --- reads -------------------------------------------------------------------------------------------------------

    @_keeps_its_table
    async def get(self, segment: str, keys: Sequence[bytes]) -> list[TableEntry]:
        check_read(segment, len(keys), 0)
        for _ in range(read_attempts_max):
            table, _ = await self._open(segment)
            for key in keys:
                table.layout.check_key(segment, key)
            live = await table.index.find(keys)
            if live is None:
                continue
            found = _found_once(table, keys, live)
            entries = await self._entries(table, found)
            if entries is not None:
                by_key = {entry.key: entry for entry in entries}
                return [by_key.get(key) or TableEntry(key, b"", NOT_EXISTS) for key in keys]
        raise Unavailable(f"{segment}: values moved away {read_attempts_max} times while they were read")

    @_keeps_its_table
    async def iterate(
        self, segment: str, count_max: int, continuation: bytes = b"", first_key: bytes = b"", last_key: bytes = b""
    ) -> EntriesPage:
        for _ in range(read_attempts_max):
            table, _ = await self._open(segment)
            start, is_inclusive = table.layout.page_start(continuation, first_key, last_key)
            count = max(1, min(count_max, page_entries_max))
            page = await table.index.page(start, is_inclusive, count, page_bytes_max, last_key)
            if page is None:
                continue
            entries = await self._entries(table, [(key, slot) for _, key, slot in page])
            if entries is not None:
                return EntriesPage(tuple(entries), page[-1][0] if page else b"")
        raise Unavailable(f"{segment}: values moved away {read_attempts_max} times while they were read")

    @_keeps_its_table
    async def delta(self, segment: str, from_position: int, count_max: int) -> DeltaPage:
        for _ in range(read_attempts_max):
            table, info = await self._open(segment)
            if not table.layout.supports_delta:
                raise UnsupportedOperation(f"{segment}: a fixed-key table has no delta reads")
            if not 0 <= from_position <= info.length:
                raise InvalidArgument(f"{segment}: delta from {from_position}; the table's length is {info.length}")
            selection = await self._select_delta(table, from_position, max(1, count_max))
            if selection is None:
                continue
            entries = await self._entries(table, selection.entries)
            if entries is not None:
                return DeltaPage(tuple(entries), selection.should_clear, selection.reached_end, selection.last_position)
        raise Unavailable(f"{segment}: values moved away {read_attempts_max} times while they were read")

    async def _select_delta(self, table: TableSegment, from_position: int, count_max: int) -> DeltaSelection | None:
        """``None`` if the log or the index changed so that it must be asked again."""
        index = table.index
        if isinstance(index, KeyIndex):
            return select_delta(index, table.start_offset, table.indexed_to, from_position, count_max)
        try:
            return await select_delta_from_log(self._store, table, index, from_position, count_max)
        except (SegmentTruncated, SegmentNotFound):
            return None

    async def _entries(self, table: TableSegment, found: list[tuple[bytes, Slot]]) -> list[TableEntry] | None:
        """Entries with their values; ``None`` if the compactor truncated one away meanwhile, or the table
        was deleted."""
        fetched_bytes = sum(slot.value_length for _, slot in found if slot.value is None)
        try:
            async with self._fetches.of(fetched_bytes):
                values = await read_values(self._store, table, found)
        except (SegmentTruncated, SegmentNotFound):
            return None
        return [TableEntry(key, value, slot.version) for (key, slot), value in zip(found, values, strict=True)]

    # --- what is known of a table ------------------------------------------------------------------------------------

    async def container_gone(self, container: object) -> None:
        """Forget the tables of a container that does not run here any more, one in a turn of the event loop."""
        for table in self._tables_of.pop(container, {}):
            self._forget(table)
            await asyncio.sleep(0)

    async def _open(self, segment: str) -> tuple[TableSegment, SegmentProperties]:
        """The table with everything that is durable in its index, and its segment as of the same moment: nothing was
        awaited since both agreed."""
        for _ in range(open_attempts_max):
            try:
                info = await self._store.get_info(segment)
            except SegmentNotFound:
                gone = self._tables.get(segment)
                if gone is not None:
                    self._forget(gone)
                raise
            table = self._tables.get(segment)
            if table is None or table.segment_id != info.segment_id or not self._is_current(table):
                table = self._load(segment, info)
            if table.is_fresh(info.length):
                table.start_offset = max(table.start_offset, info.start_offset)
                self._tables.move_to_end(segment)
                self._make_room(table)
                return table, info
            async with table.lock:
                if self._tables.get(segment) is table:
                    await self._catch_up(table)
        raise Unavailable(f"{segment}: the table's log changed {open_attempts_max} times while it was read")

    async def _catch_up(self, table: TableSegment) -> None:
        """Read what the log holds beyond the index; the caller has the table's lock."""
        info = await self._store.get_info(table.name)
        if table.is_fresh(info.length):
            return
        table.is_stale = True
        await table.drained()
        info = await self._store.get_info(table.name)
        if info.segment_id != table.segment_id:
            self._forget(table)
            return
        try:
            await self._read_on(table, info)
        except (SegmentNotFound, SegmentTruncated):  # who asks looks again what is there
            self._forget(table)
        except UnknownOutcome as error:  # of the index in Tier 2: of the table itself nothing was changed
            raise Unavailable(f"{table.name}: its index cannot be brought to Tier 2: {error}") from error

    async def _read_on(self, table: TableSegment, info: SegmentProperties) -> None:
        """Bring the index of a stale table, which has nothing pending, to the end of its log."""
        index = table.index
        if isinstance(index, PagedKeyIndex) and not index.is_loaded:
            await index.load(info.start_offset, info.length)
            table.indexed_to = index.covered
        if not info.start_offset <= table.indexed_to <= info.length:
            if isinstance(index, PagedKeyIndex):
                self._forget(table)
                return
            index.clear()
            table.indexed_to = info.start_offset
        try:
            await read_log(self._store, table, info.length, lambda: self._is_too_large(table))
        finally:
            if self._tables.get(table.name) is not table:
                table.index.clear()  # it was forgotten meanwhile, and must not keep what it read since
        if self._tables.get(table.name) is not table:
            return
        if self._is_too_large(table):  # it is not read to its end into memory
            await self._mark_and_forget(table)
            return
        table.start_offset = info.start_offset
        table.tail = table.indexed_to
        table.is_stale = False

    def _load(self, segment: str, info: SegmentProperties) -> TableSegment:
        old = self._tables.get(segment)
        if old is not None:
            self._forget(old)
        layout = _layout_of(info)
        index: TableIndex = KeyIndex(layout.order_key, self._budget)
        if self._pager is not None and TABLE_INDEX_IN_TIER2 in info.attributes:
            index = self._pager.make_index(segment, info.segment_id, layout.order_key)
        # It may have left since the segment was looked at, and who comes after that would be forgotten by nobody.
        container = None if self._maps is None else self._maps.container_of(segment)
        table = TableSegment(segment, info.segment_id, layout, info.start_offset, index, container)
        self._tables[segment] = table
        self._tables_of.setdefault(container, {})[table] = None
        if len(self._tables) > tables_loaded_max:
            self._forget_unused()
        return table

    def _make_room(self, used: TableSegment) -> None:
        """Count what the last one in use takes, and forget others while all take too much."""
        grown = used.index.memory_bytes - used.counted_bytes
        used.counted_bytes += grown
        self.key_bytes += grown
        while self.key_bytes > self.key_bytes_max and self._forget_unused():
            pass

    async def _page_out(self, table: TableSegment) -> None:
        """Let the table be opened again with its index in Tier 2, which is then made of its log."""
        async with table.lock:
            if table.is_stale or not self._is_too_large(table):
                return
            table.is_stale = True
            await table.drained()  # what was checked behind a pending update must not meet another in its place
            await self._mark_and_forget(table)

    async def _mark_and_forget(self, table: TableSegment) -> None:
        """The table, which is stale, is opened again with its index in Tier 2, or read on if that cannot be noted."""
        if self._pager is not None and await self._pager.mark(table):
            self._forget(table)

    def _is_too_large(self, table: TableSegment) -> bool:
        return self._pager is not None and self._pager.is_too_large(table)

    def _is_current(self, table: TableSegment) -> bool:
        return self._pager is None or self._pager.is_current(table)

    def _forget(self, table: TableSegment) -> None:
        if self._tables.get(table.name) is table:
            del self._tables[table.name]
            tables = self._tables_of.get(table.container, {})
            tables.pop(table, None)
            if not tables:
                self._tables_of.pop(table.container, None)
            self.key_bytes -= table.counted_bytes
            table.counted_bytes = 0
        table.is_stale = True
        table.index.clear()

    def _forget_unused(self) -> bool:
        """Forget the longest unused table but for the one that was used last; whether one was idle."""
        for table in itertools.islice(self._tables.values(), min(len(self._tables) - 1, unused_looks_max)):
            is_used = table.name in self._users or table.pending or table.lock.locked() or table.is_compacting
            if not is_used:
                self._forget(table)
                self.forgotten_total += 1
                return True
        return False


def _found_once(table: TableSegment, keys: Sequence[bytes], live: Mapping[bytes, Slot]) -> list[tuple[bytes, Slot]]:
    """The keys that exist, each once; ``InvalidArgument`` if the whole answer, with each key as often as it was asked
    for, would be too large."""
    found: dict[bytes, Slot] = {}
    reply_bytes = 0
    for key in keys:
        slot = live.get(key)
        reply_bytes += entry_wire_bytes(len(key), 0 if slot is None else slot.value_length)
        if slot is not None:
            found[key] = slot
    check_read(table.name, len(keys), reply_bytes)
    return list(found.items())


def _layout_of(info: SegmentProperties) -> TableLayout:
    kind = info.attributes.get(SEGMENT_TYPE, 0)
    if kind == SEGMENT_TYPE_HASH_TABLE:
        return HashTableLayout()
    if kind == SEGMENT_TYPE_FIXED_KEY_TABLE:
        return FixedKeyTableLayout(info.attributes[TABLE_KEY_LENGTH])
    raise NotATable(info.name, f"{info.name} is not a table segment")
