"""Counts streams, key-value tables and their segments against the quota of their scope (docs/security.md 7).

A stream is counted with more segments before they are made, and with fewer after they are gone. Both happen in
requests, which are repeated after a crash, so what was counted too much comes right with the end of the request. Who
counts a stream looks at its entry afterwards, and a deletion marks the entry before it takes the stream out: one of the
two always sees the other. With key-value tables, whose number of segments never changes, it is the same.
"""

from __future__ import annotations

from controller_service.store.members import KeyValueTableRecord, ScopeMemberState, key_value_tables
from controller_service.store.records import (
    TRANSITION,
    EpochRecord,
    EpochTransitionRecord,
    ScopeRecord,
)
from controller_service.store.scope_counts import COUNTS_TABLE, Counted, Wanted, refused_mark_stream
from controller_service.store.scope_store import list_table_name
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import StreamNotFound
from pravega_common.names import MARK_PREFIX, scoped_name
from pravega_common.runtime.failpoints import failpoint, register

RESERVED = register("controller.use_reserved")
SETTLED = register("controller.use_settled")


class StreamCounts:
    """Costs one read of the scope's record where there is no quota."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store

    async def begin(self, scope: str, stream: str, stream_id: str, record: ScopeRecord, segments: int) -> None:
        """Count a stream that is about to get its first segments, unless it is counted already; ``QuotaExceeded``."""

        async def wanted(old: int) -> int:
            return old or segments

        if record.quota is not None:
            await self._count(scope, stream, stream_id, record, wanted)
            failpoint(RESERVED)

    async def reserve(self, scope: str, stream: str, stream_id: str, segments: int) -> None:
        """Count a stream that is about to have more segments than before; ``QuotaExceeded``, always for a mark stream,
        which is not counted and keeps its one segment."""

        async def wanted(old: int) -> int:
            return max(old, segments)

        record = await self._store.scope(scope)
        if record is not None and record.quota is not None:
            if stream.startswith(MARK_PREFIX):
                raise refused_mark_stream(scope, stream)
            await self._count(scope, stream, stream_id, record, wanted)
            failpoint(RESERVED)

    async def settle(self, scope: str, stream: str, stream_id: str) -> None:
        """Count a stream with the segments that it has, or that a scale under way gives it. Idempotent."""

        async def wanted(old: int) -> int:
            try:
                context = await self._store.open(scope, stream, TRANSITION)
                if context.stream_id != stream_id:
                    return 0
                return segments_of(await context.current_epoch(), await context.transition())
            except StreamNotFound:
                # Half-made, or gone, which the look at its entry tells.
                return old

        record = None if stream.startswith(MARK_PREFIX) else await self._store.scope(scope)
        if record is not None and record.quota is not None:
            await self._count(scope, stream, stream_id, record, wanted, is_refusable=False)
            failpoint(SETTLED)

    async def release_if_gone(self, scope: str, stream: str, stream_id: str, record: ScopeRecord) -> None:
        """Take a stream out that was counted, if it is gone or being deleted."""
        entry = await self._store.entry(scope, stream)
        if entry is None or entry.stream_id != stream_id or entry.deleting:
            await self._store.counts.release(_table(scope, record), Counted(stream_id, scoped_name(scope, stream)))

    async def _count(
        self,
        scope: str,
        stream: str,
        stream_id: str,
        record: ScopeRecord,
        wanted: Wanted,
        *,
        is_refusable: bool = True,
    ) -> None:
        quota = record.quota if is_refusable and record.is_counted else None
        one = Counted(stream_id, scoped_name(scope, stream))
        await self._store.counts.change(_table(scope, record), one, wanted, quota)
        await self.release_if_gone(scope, stream, stream_id, record)


class KeyValueTableCounts:
    """Costs one read of the scope's record where there is no quota."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._records = key_value_tables(store)

    async def begin(self, scope: str, table: str, record: KeyValueTableRecord) -> None:
        """Count a table that is about to get its segments, unless it is counted already. ``QuotaExceeded``, but not
        once the number of its first segment is chosen: segments may have been made then."""
        found = await self._store.scope(scope)
        if found is not None and found.quota is not None:
            await self.settle(scope, table, record, found, is_refusable=record.first_segment_number is None)
            failpoint(RESERVED)

    async def settle(
        self,
        scope: str,
        table: str,
        record: KeyValueTableRecord,
        found: ScopeRecord,
        *,
        is_refusable: bool = False,
    ) -> None:
        """Count a table of a scope that has a quota; one that is gone meanwhile, or going, is not counted."""

        async def wanted(old: int) -> int:
            return record.partition_count

        one = Counted(record.table_id, scoped_name(scope, table), is_table=True)
        quota = found.quota if is_refusable and found.is_counted else None
        await self._store.counts.change(_table(scope, found), one, wanted, quota)
        await self.release_if_gone(scope, one, found)

    async def release_if_gone(self, scope: str, one: Counted, found: ScopeRecord) -> None:
        """Take a table out that was counted, if it is gone or being deleted."""
        standing = await self._records.get(scope, one.name.partition("/")[2])
        if standing is None or standing.table_id != one.id or standing.state is ScopeMemberState.DELETING:
            await self._store.counts.release(_table(scope, found), one)

    async def release(self, scope: str, table: str, table_id: str) -> None:
        """Count a table no more whose segments are gone, before its record goes. Idempotent."""
        found = await self._store.scope(scope)
        if found is not None and found.quota is not None:
            one = Counted(table_id, scoped_name(scope, table), is_table=True)
            await self._store.counts.release(_table(scope, found), one)


def _table(scope: str, record: ScopeRecord) -> str:
    return list_table_name(scope, record.scope_id, COUNTS_TABLE)


def segments_of(current: EpochRecord, transition: EpochTransitionRecord) -> int:
    """The segments of a stream, or those that the scale under way gives it if these are more."""
    count = len(current.segments)
    if transition.is_empty or transition.active_epoch != current.epoch:
        return count
    return max(count, count - len(transition.segments_to_seal) + len(transition.new_segments))
