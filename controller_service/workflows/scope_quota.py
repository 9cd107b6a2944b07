"""Sets the quota of a scope, tells the stores its limits of bytes, and counts what the scope had before
(docs/security.md 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.store.byte_limits import ByteLimitsRecord
from controller_service.store.members import key_value_tables
from controller_service.store.records import ScopeRecord
from controller_service.store.scope_counts import COUNTS_TABLE
from controller_service.store.scope_store import list_table_name
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.stream_use import KeyValueTableCounts, StreamCounts
from pravega_common.errors import InvalidArgument, ScopeNotFound
from pravega_common.model.scope_quota import DescribedQuota, ScopeQuota
from pravega_common.names import MARK_PREFIX, SYSTEM_SCOPE
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

KIND: Final = "set_scope_quota"
counted_at_once_max: Final = 16
"""Streams or tables whose records are read at the same time while those of a scope are counted."""

RECORDED = register("controller.quota_recorded")
STREAMS_COUNTED = register("controller.quota_streams_counted")


class SetScopeQuota:
    """The first quota of a scope costs in proportion to the streams and tables that it has; another one in its place
    does not."""

    def __init__(
        self, store: StreamStore, queue: RequestQueue, limits: ByteLimitsRecord, new_id: Callable[[], str]
    ) -> None:
        """``new_id`` gives ids that are never given twice."""
        self._store = store
        self._limits = limits
        self._queue = queue
        self._new_id = new_id
        self._use = StreamCounts(store)
        self._tables = key_value_tables(store)
        self._table_use = KeyValueTableCounts(store)
        queue.register(KIND, self.handle)

    async def describe(self, scope: str) -> DescribedQuota:
        """The limits and what is used of them; ``ScopeNotFound``."""
        record = await self._store.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        use = await self._store.counts.total(list_table_name(scope, record.scope_id, COUNTS_TABLE))
        return DescribedQuota(record.quota or ScopeQuota(), use, record.is_counted)

    async def set(self, scope: str, quota: ScopeQuota) -> None:
        """Replace the whole quota; returns once it is held. ``ScopeNotFound``; ``InvalidArgument`` for the system's
        scope. ``WaitTimedOut`` while the streams of a scope are still being counted, which goes on."""
        if scope == SYSTEM_SCOPE:
            raise InvalidArgument(f"scope {scope} is the system's own and has no quota")
        record = await self._store.usable_scope(scope)
        payload = {
            "scope": scope,
            "scope_id": record.scope_id,
            "quota": encode(quota).decode(),
            "order": record.quota_order + 1,
        }
        await run_and_wait(self._queue, Request(f"{KIND}-{self._new_id()}", KIND, f"{scope}/", payload))

    async def handle(self, request: Request) -> None:
        scope, scope_id = request.payload["scope"], request.payload["scope_id"]
        quota = decode(ScopeQuota, request.payload["quota"].encode())
        table = list_table_name(scope, scope_id, COUNTS_TABLE)
        if quota.limits_bytes:
            await self._limits.require_room(scope)
        if not quota.is_none:
            await self._store.tables.create_table(table)
        order, request_id = request.payload["order"], request.request_id
        record = await self._store.change_scope(
            scope, scope_id, lambda record: _with_quota(record, quota, order, request_id)
        )
        if record is None:
            if await self._store.scope(scope) is None:
                # Made after the tables of the scope were deleted.
                await self._store.tables.delete_table(table)
            raise ScopeNotFound.of(scope)
        if record.quota_request != request_id:
            # It was carried out before, by a controller that died, and the quota was changed since.
            return
        failpoint(RECORDED)
        await self._limits.refresh(scope)
        if record.quota is not None and not record.is_counted:
            await self._count_streams(scope)
            await self._count_tables(scope, record)
            await self._release_gone(scope, record)
            failpoint(STREAMS_COUNTED)
            await self._store.change_scope(scope, scope_id, lambda record: _as_counted(record, request_id))

    async def _count_streams(self, scope: str) -> None:
        token = b""
        while True:
            streams, token = await self._store.list_streams(scope, token)
            named = [(name, entry.stream_id) for name, entry in streams if not name.startswith(MARK_PREFIX)]
            await each_ended(lambda one: self._use.settle(scope, *one), named, at_once=counted_at_once_max)
            if not token:
                return

    async def _count_tables(self, scope: str, record: ScopeRecord) -> None:
        token = b""
        while True:
            tables, token = await self._tables.page(scope, token)
            await each_ended(
                lambda one: self._table_use.settle(scope, *one, record), tables, at_once=counted_at_once_max
            )
            if not token:
                return

    async def _release_gone(self, scope: str, record: ScopeRecord) -> None:
        """Take out what an earlier quota counted and was deleted while there was no quota."""
        table, token = list_table_name(scope, record.scope_id, COUNTS_TABLE), b""
        while True:
            counted, token = await self._store.counts.page(table, scope, token)
            for one in counted:
                if one.is_table:
                    await self._table_use.release_if_gone(scope, one, record)
                else:
                    await self._use.release_if_gone(scope, one.name.partition("/")[2], one.id, record)
            if not token:
                return


def _with_quota(record: ScopeRecord, quota: ScopeQuota, order: int, request_id: str) -> ScopeRecord:
    """The record with the quota of a request, unless it has that of a later one."""
    if (order, request_id) <= (record.quota_order, record.quota_request):
        return record
    changed = dataclasses.replace(record, quota_order=order, quota_request=request_id)
    if quota.is_none:
        return dataclasses.replace(changed, quota=None, is_counted=False)
    return dataclasses.replace(changed, quota=quota)


def _as_counted(record: ScopeRecord, request_id: str) -> ScopeRecord:
    """Another request that changed the quota since counts by itself."""
    is_same = record.quota is not None and record.quota_request == request_id
    return dataclasses.replace(record, is_counted=True) if is_same else record
