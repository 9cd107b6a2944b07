"""Deletes a scope if it is empty, or with everything in it (docs/controller-api.md 2.4).

Both close the scope first, so that nothing is added to it any more; what is closed is in a request of the queue, which
removes it or, if it had to be empty and is not, opens it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from controller_service.queue.request_queue import Postpone, Request, RequestQueue, run_and_wait
from controller_service.store.byte_limits import ByteLimitsRecord
from controller_service.store.members import KeyValueTableRecord, M, ReaderGroupRecord, ScopeMembers
from controller_service.store.records import ScopeRecord, StreamState
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.key_value_tables import KeyValueTables
from controller_service.workflows.reader_groups import ReaderGroups
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.states import no_way_back
from pravega_common.errors import ScopeNotEmpty, ScopeNotFound, SegmentNotFound, StreamNotFound
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

KIND: Final = "delete_scope"
IF_EMPTY_KIND: Final = "delete_scope_if_empty"
streams_concurrent_max: Final = 10

CLOSED = register("controller.scope_closed")
CLOSED_TO_LOOK = register("controller.scope_closed_to_look")
OPENED_AGAIN = register("controller.scope_opened_again")
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
        limits: ByteLimitsRecord,
    ) -> None:
        self._store = store
        self._limits = limits
        self._groups = groups
        self._tables = tables
        self._queue = queue
        self._seal = seal
        self._delete = delete
        queue.register(KIND, self.handle)
        queue.register(IF_EMPTY_KIND, self.handle_if_empty)

    async def delete(self, scope: str) -> None:
        """Returns when everything is gone, at once if the scope does not exist. New members are refused meanwhile."""
        record = await self._store.scope(scope)
        if record is None:
            return
        payload = {"scope": scope, "scope_id": record.scope_id}
        await run_and_wait(self._queue, Request(f"{KIND}-{record.scope_id}", KIND, f"{scope}/", payload))

    async def delete_if_empty(self, request_id: str, scope: str) -> None:
        """``ScopeNotFound``; ``ScopeNotEmpty``: the scope is as it was then."""
        record = await self._store.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        # A scope in use is not closed, even for a moment, just to find that out.
        await self._require_empty(scope, record)
        payload = {"scope": scope, "scope_id": record.scope_id}
        await run_and_wait(self._queue, Request(f"{IF_EMPTY_KIND}-{request_id}", IF_EMPTY_KIND, f"{scope}/", payload))

    async def _require_empty(self, scope: str, record: ScopeRecord) -> None:
        try:
            is_empty = await self._store.scope_is_empty(scope, record)
        except SegmentNotFound as error:
            raise ScopeNotFound.of(scope) from error
        if not is_empty:
            raise ScopeNotEmpty(f"scope {scope} has streams, reader groups or key-value tables")

    async def handle_if_empty(self, request: Request) -> None:
        closed = await self._close(request, request.request_id)
        if closed is None:
            return
        scope, (record, version) = request.payload["scope"], closed
        failpoint(CLOSED_TO_LOOK)
        try:
            await self._require_empty(scope, record)
        except ScopeNotEmpty:
            if record.holder:
                await self._store.reopen_scope(scope, record, version)
                failpoint(OPENED_AGAIN)
            raise
        await self._remove(scope, record.scope_id, version)

    async def _close(self, request: Request, holder: str = "") -> tuple[ScopeRecord, int] | None:
        """None if the scope is gone: its record went in an earlier attempt, and what that did not come to is done."""
        scope, scope_id = request.payload["scope"], request.payload["scope_id"]
        closed = await self._store.close_scope(scope, scope_id, holder)
        if closed is None:
            await self._remove(scope, scope_id)
        return closed

    async def _remove(self, scope: str, scope_id: str, version: int | None = None) -> None:
        await self._store.remove_scope(scope, scope_id, version)
        # Afterwards: a scope that is opened again keeps its limits.
        await self._limits.refresh(scope)

    async def handle(self, request: Request) -> None:
        closed = await self._close(request)
        if closed is None:
            return
        scope, (record, _) = request.payload["scope"], closed
        failpoint(CLOSED)
        with no_way_back(f"deletion of scope {scope}"):
            await self._delete_all(scope, record)

    async def _delete_all(self, scope: str, record: ScopeRecord) -> None:
        # Groups first: they unsubscribe from streams and delete a stream of their own.
        await _for_all(self._groups.records, scope, lambda name, group: self._delete_group(scope, name, group))
        failpoint(GROUPS_DELETED)
        await self._delete_streams(scope, lambda name: not name.startswith(MARK_PREFIX))
        # Mark streams went with their streams. What is left has none: its maker died, or it was created by this name.
        await self._delete_streams(scope, lambda name: name.startswith(MARK_PREFIX))
        failpoint(STREAMS_DELETED)
        await _for_all(self._tables.records, scope, lambda name, table: self._delete_table(scope, name, table))
        failpoint(TABLES_DELETED)
        if not await self._store.scope_is_empty(scope, record):
            raise Postpone(f"scope {scope} still has members")
        await self._remove(scope, record.scope_id)

    async def _delete_group(self, scope: str, name: str, group: ReaderGroupRecord) -> None:
        await self._groups.delete_within(scope, name, group.group_id)

    async def _delete_table(self, scope: str, name: str, table: KeyValueTableRecord) -> None:
        await self._tables.delete_within(scope, name, table.table_id)

    async def _delete_streams(self, scope: str, is_meant: Callable[[str], bool]) -> None:
        token = b""
        while True:
            try:
                streams, token = await self._store.list_streams(scope, token)
            except ScopeNotFound:
                return
            named = [(name, entry.stream_id) for name, entry in streams if is_meant(name)]
            await each_ended(lambda one: self._delete_one(scope, *one), named, at_once=streams_concurrent_max)
            if not token:
                return

    async def _delete_one(self, scope: str, stream: str, stream_id: str) -> None:
        """Within this request rather than by requests of their own, which could wait for a free place behind it."""
        # A half-made one can be deleted without having been sealed: its creation may have been refused as the scope was
        # closed, so nobody would complete it.
        try:
            if await (await self._store.open(scope, stream)).state() is not StreamState.CREATING:
                await self._seal.carry_out(scope, stream, stream_id)
        except StreamNotFound:
            # Without records, or gone meanwhile.
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
