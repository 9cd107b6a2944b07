"""Delete a scope with everything in it (controller-api.md 2.4, deleteScopeRecursive)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from controller_service.errors import NoSuchScope, NoSuchStream
from controller_service.store.members import KeyValueTableRecord, M, ReaderGroupRecord, ScopeMembers
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.answers import run_and_wait
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.key_value_tables import KeyValueTables
from controller_service.workflows.reader_groups import ReaderGroups
from controller_service.workflows.request_queue import Postpone, Request, RequestQueue
from controller_service.workflows.seal_stream import SealStream
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.failpoints import failpoint, register

KIND: Final = "delete_scope"
streams_concurrent_max: Final = 10

CLOSED = register("controller.scope_closed")
GROUPS_DELETED = register("controller.scope_groups_deleted")
STREAMS_DELETED = register("controller.scope_streams_deleted")
TABLES_DELETED = register("controller.scope_tables_deleted")


class DeleteScope:
    def __init__(
        self,
        store: StreamStore,
        queue: RequestQueue,
        seal: SealStream,
        delete: DeleteStream,
        groups: ReaderGroups,
        tables: KeyValueTables,
    ) -> None:
        self._store = store
        self._groups = groups
        self._tables = tables
        self._queue = queue
        self._seal = seal
        self._delete = delete
        queue.register(KIND, self.handle)

    async def delete(self, scope: str) -> None:
        """Returns when everything is gone, at once if the scope does not exist. New members are refused meanwhile."""
        closed = await self._store.close_scope(scope)
        if closed is None:
            return
        failpoint(CLOSED)
        record, _ = closed
        payload = {"scope": scope, "scope_id": record.scope_id}
        await run_and_wait(self._queue, f"{KIND}-{record.scope_id}", KIND, f"{scope}/", payload)

    async def handle(self, request: Request) -> None:
        scope = request.payload["scope"]
        record = await self._store.scope(scope)
        if record is None or record.scope_id != request.payload["scope_id"]:
            # Its record went in an earlier attempt; what that one did not come to is done now.
            await self._store.remove_scope(scope, request.payload["scope_id"])
            return
        # Groups first: they unsubscribe from streams and delete a stream of their own.
        await _for_all(self._groups.records, scope, lambda name, group: self._delete_group(scope, name, group))
        failpoint(GROUPS_DELETED)
        await self._delete_streams(scope)
        failpoint(STREAMS_DELETED)
        await _for_all(self._tables.records, scope, lambda name, table: self._delete_table(scope, name, table))
        failpoint(TABLES_DELETED)
        if not await self._store.scope_is_empty(scope, record):
            raise Postpone(f"scope {scope} still has members")
        await self._store.remove_scope(scope, record.scope_id)

    async def _delete_group(self, scope: str, name: str, group: ReaderGroupRecord) -> None:
        await self._groups.delete_within(scope, name, group.group_id)

    async def _delete_table(self, scope: str, name: str, table: KeyValueTableRecord) -> None:
        await self._tables.delete_within(scope, name, table.table_id)

    async def _delete_streams(self, scope: str) -> None:
        slots = asyncio.Semaphore(streams_concurrent_max)

        async def delete(stream: str, stream_id: str) -> None:
            async with slots:
                await self._delete_one(scope, stream, stream_id)

        token = b""
        while True:
            try:
                streams, token = await self._store.list_streams(scope, token)
            except NoSuchScope:
                return
            await asyncio.gather(
                *(delete(name, entry.stream_id) for name, entry in streams if not name.startswith(MARK_PREFIX))
            )
            if not token:
                return

    async def _delete_one(self, scope: str, stream: str, stream_id: str) -> None:
        """Within this request rather than by requests of their own, which could wait for a free place behind it."""
        try:
            await self._seal.carry_out(scope, stream, stream_id)
        except NoSuchStream:
            # Half-made: it can be deleted without having been sealed.
            pass
        await self._delete.carry_out(scope, stream, stream_id)


async def _for_all(members: ScopeMembers[M], scope: str, delete: Callable[[str, M], Awaitable[None]]) -> None:
    token = b""
    while True:
        page, token = await members.page(scope, token)
        for name, record in page:
            await delete(name, record)
        if not token:
            return
