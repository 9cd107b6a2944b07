"""Creates and deletes key-value tables (docs/controller-api.md 6)."""

from __future__ import annotations

import dataclasses
from typing import Final

from controller_service.errors import MemberBeingDeleted, QuotaExceeded
from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.segment_access.late_segments import insist
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.segment_access.segment_access import (
    SegmentAccess,
    calls_at_once_max,
    delete_table_segments,
)
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState, key_value_tables
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.states import no_way_back
from controller_service.workflows.stream_use import KeyValueTableCounts
from pravega_common.errors import NotFound, PravegaError, ScopeNotFound, SegmentNotFound
from pravega_common.model.table_limits import check_fixed_key_length
from pravega_common.names import scoped_name, segment_id, table_segment_name, table_stream
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

CREATE_KIND: Final = "create_key_value_table"
DELETE_KIND: Final = "delete_key_value_table"
partitions_max: Final = 10_000

ENTRY_ADDED = register("controller.table_entry_added")
NUMBER_CHOSEN = register("controller.table_number_chosen")
SEGMENTS_CREATED = register("controller.table_segments_created")
DELETION_MARKED = register("controller.table_deletion_marked")
SEGMENTS_DELETED = register("controller.table_segments_deleted")
NUMBER_RECORDED = register("controller.table_number_recorded")


class KeyValueTables:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue, again: SecondDeletion) -> None:
        self.records = key_value_tables(store)
        self._store = store
        self._access = access
        self._queue = queue
        self._again = again
        self._use = KeyValueTableCounts(store)
        queue.register(CREATE_KIND, self._create)
        queue.register(DELETE_KIND, self._delete)

    async def create(self, scope: str, table: str, record: KeyValueTableRecord) -> bool:
        """``record`` in state creating. False if the table exists.

        ``ScopeNotFound``, ``QuotaExceeded``; ``MemberBeingDeleted`` for a table of the name that goes: told that it
        exists, the caller would go on without one.
        """
        unnumbered = dataclasses.replace(record, first_segment_number=None)
        standing, added = await self.records.add(scope, table, unnumbered)
        failpoint(ENTRY_ADDED)
        if not added and standing.state is ScopeMemberState.ACTIVE:
            return False
        if standing.state is ScopeMemberState.DELETING:
            raise MemberBeingDeleted(
                f"key-value table {scope}/{table} is being deleted; it can be created again when that has ended"
            )
        await self._run(CREATE_KIND, scope, table, standing.table_id)
        return added

    async def delete(self, scope: str, table: str) -> bool:
        """False if there is no such table."""
        record = await self.records.get(scope, table)
        if record is None:
            return False
        await self._run(DELETE_KIND, scope, table, record.table_id)
        return True

    async def delete_within(self, scope: str, table: str, table_id: str) -> None:
        """For other workflows' handlers. Idempotent."""
        record = await self.records.get(scope, table)
        if record is None or record.table_id != table_id:
            return
        record = await self.records.change(
            scope,
            table,
            lambda old: dataclasses.replace(old, state=ScopeMemberState.DELETING) if old.table_id == table_id else old,
        )
        if record is None or record.table_id != table_id:
            return
        failpoint(DELETION_MARKED)
        if record.first_segment_number is not None:
            names = _segments(scope, table, record)
            if self._again.may_come(record.created_ms):
                await self._again.promise(names, are_tables=True)
            await delete_table_segments(self._access, names)
            failpoint(SEGMENTS_DELETED)
            await self._store.record_deleted(scope, table_stream(table), record.segment_numbers.stop)
        failpoint(NUMBER_RECORDED)
        await self._use.release(scope, table, table_id)
        await self.records.remove(scope, table, record)

    async def _run(self, kind: str, scope: str, table: str, table_id: str) -> None:
        payload = {"scope": scope, "table": table, "table_id": table_id}
        await run_and_wait(
            self._queue, Request(f"{kind}-{table_id}", kind, scoped_name(scope, table_stream(table)), payload)
        )

    async def _create(self, request: Request) -> None:
        scope, table = request.payload["scope"], request.payload["table"]
        record = await self.records.get(scope, table)
        table_id = request.payload["table_id"]
        if record is None or record.table_id != table_id or record.state is ScopeMemberState.DELETING:
            raise NotFound(f"key-value table {scope}/{table} was deleted meanwhile")
        key_length = record.primary_key_length + record.secondary_key_length
        # Former versions took more than a table has.
        check_fixed_key_length(scoped_name(scope, table), key_length)
        await self._admit(scope, table, record)
        record = await self._numbered(scope, table, record)
        if record.state is not ScopeMemberState.CREATING:
            return
        failpoint(NUMBER_CHOSEN)
        names = _segments(scope, table, record)
        rollover = record.rollover_size_bytes
        try:
            await each_ended(
                lambda name: self._access.create_table_segment(name, key_length, rollover),
                names,
                at_once=calls_at_once_max,
            )
        except PravegaError:
            # Some of them may exist, and the next attempt asks for nothing if the table was deleted meanwhile.
            await self._take_away_if_gone(scope, table, record)
            raise
        failpoint(SEGMENTS_CREATED)
        await self._activate(scope, table, record)

    async def _admit(self, scope: str, table: str, record: KeyValueTableRecord) -> None:
        """Count the table against the quota of its scope. ``QuotaExceeded``: nothing is left of it."""
        if record.state is not ScopeMemberState.CREATING:
            return
        try:
            await self._use.begin(scope, table, record)
        except QuotaExceeded:
            # Without a number it has no segments.
            await self.records.remove(scope, table, record)
            raise

    async def _numbered(self, scope: str, table: str, record: KeyValueTableRecord) -> KeyValueTableRecord:
        """The table with the number of its first segment; ``NotFound`` if it was deleted meanwhile.

        The number is read while the table's record stands, so all deletions of the name before it have recorded theirs.
        """
        if record.first_segment_number is not None or record.state is not ScopeMemberState.CREATING:
            return record
        first = await self._store.first_segment_number(scope, table_stream(table))

        def choose(old: KeyValueTableRecord) -> KeyValueTableRecord:
            return dataclasses.replace(old, first_segment_number=first) if old == record else old

        chosen = await self.records.change(scope, table, choose)
        if chosen is None or chosen.table_id != record.table_id:
            raise NotFound(f"key-value table {scope}/{table} was deleted meanwhile")
        return chosen

    async def _activate(self, scope: str, table: str, made: KeyValueTableRecord) -> None:
        """Make the table active, or take its segments away if its deletion may have passed before they came."""
        active = dataclasses.replace(made, state=ScopeMemberState.ACTIVE)

        async def activate() -> None:
            try:
                record = await self.records.change(scope, table, lambda old: active if old == made else old)
            except (ScopeNotFound, SegmentNotFound):
                record = None
            if record != active:
                await delete_table_segments(self._access, _segments(scope, table, made))

        await insist(activate, self._store.clock)

    async def _take_away_if_gone(self, scope: str, table: str, made: KeyValueTableRecord) -> None:
        active = dataclasses.replace(made, state=ScopeMemberState.ACTIVE)

        async def settle() -> None:
            if await self.records.get(scope, table) not in (made, active):
                await delete_table_segments(self._access, _segments(scope, table, made))

        await insist(settle, self._store.clock)

    async def _delete(self, request: Request) -> None:
        scope, table = request.payload["scope"], request.payload["table"]
        with no_way_back(f"deletion of key-value table {scope}/{table}"):
            await self.delete_within(scope, table, request.payload["table_id"])


def _segments(scope: str, table: str, record: KeyValueTableRecord) -> list[str]:
    return [table_segment_name(scope, table, segment_id(number, 0)) for number in record.segment_numbers]
