"""Creates and deletes key-value tables (docs/controller-api.md 6)."""

from __future__ import annotations

import dataclasses
from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState, key_value_tables
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.states import no_way_back
from pravega_common.errors import NotFound
from pravega_common.names import scoped_name, segment_id, table_segment_name, table_stream
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended

CREATE_KIND: Final = "create_key_value_table"
DELETE_KIND: Final = "delete_key_value_table"
partitions_max: Final = 10_000

ENTRY_ADDED = register("controller.table_entry_added")
SEGMENTS_CREATED = register("controller.table_segments_created")
DELETION_MARKED = register("controller.table_deletion_marked")
SEGMENTS_DELETED = register("controller.table_segments_deleted")


class KeyValueTables:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue) -> None:
        self.records = key_value_tables(store)
        self._access = access
        self._queue = queue
        queue.register(CREATE_KIND, self._create)
        queue.register(DELETE_KIND, self._delete)

    async def create(self, scope: str, table: str, record: KeyValueTableRecord) -> bool:
        """``record`` in state creating. False if the table exists; ``ScopeNotFound``."""
        standing, added = await self.records.add(scope, table, record)
        failpoint(ENTRY_ADDED)
        if not added and standing.state is ScopeMemberState.ACTIVE:
            return False
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
        names = _segments(scope, table, record.partition_count)
        await all_ended(self._access.delete_table_segment(name, must_be_empty=False) for name in names)
        failpoint(SEGMENTS_DELETED)
        await self.records.remove(scope, table, record)

    async def _run(self, kind: str, scope: str, table: str, table_id: str) -> None:
        payload = {"scope": scope, "table": table, "table_id": table_id}
        await run_and_wait(
            self._queue, Request(f"{kind}-{table_id}", kind, scoped_name(scope, table_stream(table)), payload)
        )

    async def _create(self, request: Request) -> None:
        scope, table = request.payload["scope"], request.payload["table"]
        record = await self.records.get(scope, table)
        if record is None or record.table_id != request.payload["table_id"]:
            raise NotFound(f"key-value table {scope}/{table} was deleted meanwhile")
        if record.state is not ScopeMemberState.CREATING:
            return
        key_length = record.primary_key_length + record.secondary_key_length
        await all_ended(
            self._access.create_table_segment(name, key_length, record.rollover_size_bytes)
            for name in _segments(scope, table, record.partition_count)
        )
        failpoint(SEGMENTS_CREATED)
        await self.records.change(
            scope,
            table,
            lambda old: (
                dataclasses.replace(old, state=ScopeMemberState.ACTIVE)
                if old.table_id == record.table_id and old.state is ScopeMemberState.CREATING
                else old
            ),
        )

    async def _delete(self, request: Request) -> None:
        scope, table = request.payload["scope"], request.payload["table"]
        with no_way_back(f"deletion of key-value table {scope}/{table}"):
            await self.delete_within(scope, table, request.payload["table_id"])


def _segments(scope: str, table: str, count: int) -> list[str]:
    return [table_segment_name(scope, table, segment_id(number, 0)) for number in range(count)]
