"""Stores scopes and the lists of their members in a ``VersionedStore``."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from controller_service.store.deleted_streams import DELETED_STREAMS_TABLE
from controller_service.store.records import ScopeRecord
from controller_service.store.scope_counts import COUNTS_TABLE, ScopeCounts
from controller_service.store.serializer import decode, encode
from controller_service.store.tag_index import TAGS_TABLE
from controller_service.store.versioned_store import ABSENT, VersionedStore
from pravega_common.errors import PravegaError, ScopeNotFound, UnknownOutcome, VersionConflict
from pravega_common.names import SYSTEM_SCOPE, is_possible_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from pravega_common.services.retrying import RetryLimits, compare_and_set

T = TypeVar("T")

cas_limits: Final = RetryLimits(attempts_max=20, pause_s=lambda lost: 0.01 * lost)
"""Attempts of one compare-and-set operation before its conflict is reported."""
page_size: Final = 1_000
"""Names on one page of a listing."""

SCOPES_TABLE: Final = "scopes"
BYTE_LIMITS_TABLE: Final = "byteLimits"
STREAMS_LIST: Final = "streamsInScope"
KEY_VALUE_TABLES_LIST: Final = "kvTablesInScope"
READER_GROUPS_LIST: Final = "readerGroupsInScope"
SCOPE_LISTS: Final = (STREAMS_LIST, KEY_VALUE_TABLES_LIST, READER_GROUPS_LIST)
_SCOPE_TABLES: Final = (*SCOPE_LISTS, TAGS_TABLE)
_ALL_SCOPE_TABLES: Final = (*_SCOPE_TABLES, COUNTS_TABLE)
"""With those that only some scopes have."""


RECORD_REMOVED = register("controller.scope_record_removed")


def list_table_name(scope: str, scope_id: str, kind: str) -> str:
    return f"{scope}/{kind}.#.{scope_id}"


class ScopeStore:
    def __init__(self, tables: VersionedStore, clock: Clock, new_id: Callable[[], str]) -> None:
        """``new_id`` gives ids that are never given twice in the cluster's life, such as a random UUID's hex."""
        self.tables = tables
        self.clock = clock
        self._new_id = new_id
        self.counts = ScopeCounts(tables, self.compare_and_set)

    async def create_system_tables(self) -> bool:
        """Make the tables that every cluster has, and scope ``_system``; whether the cluster is new. Idempotent."""
        await all_ended(
            self.tables.create_table(table) for table in (SCOPES_TABLE, DELETED_STREAMS_TABLE, BYTE_LIMITS_TABLE)
        )
        return await self.create_scope(SYSTEM_SCOPE)

    async def compare_and_set(self, subject: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` again, from its reads, while others get in between; ``VersionConflict`` names the subject."""
        return await compare_and_set(work, cas_limits, self.clock, subject=subject)

    # ---- one scope ---------------------------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """False if it exists already (also while it is being deleted). One that fails takes its lists away again, as
        far as it can: nobody else knows of them."""
        if await self.tables.get(SCOPES_TABLE, scope) is not None:
            return False
        record = ScopeRecord(self._new_id(), self.clock.wall_ms(), tags_indexed=True)
        made = await self._make_lists(scope, record.scope_id)
        try:
            await self.tables.put(SCOPES_TABLE, scope, encode(record), ABSENT)
        except (VersionConflict, UnknownOutcome) as error:
            standing = await self.scope(scope)
            if standing is None or standing.scope_id != record.scope_id:
                # A record whose outcome is not known may still come: with its lists it is a scope like others.
                if isinstance(error, VersionConflict):
                    await self._delete_lists(scope, record.scope_id)
                if standing is None:
                    raise
                return False
        except PravegaError:
            await self._take_away(made)
            raise
        return True

    async def _make_lists(self, scope: str, scope_id: str) -> list[str]:
        """The names of the tables."""
        made: list[str] = []

        async def make(table: str) -> None:
            await self.tables.create_table(table)
            made.append(table)

        try:
            await all_ended(make(list_table_name(scope, scope_id, kind)) for kind in _SCOPE_TABLES)
        except (PravegaError, asyncio.CancelledError):
            await self._take_away(made)
            raise
        return made

    async def _take_away(self, made: Sequence[str]) -> None:
        with contextlib.suppress(PravegaError):  # what kept the scope from being made is what its caller hears of
            await all_ended(map(self.tables.delete_table, made))

    async def scope(self, scope: str) -> ScopeRecord | None:
        """None also for the empty name and for one that is too long, which no table takes as a key."""
        if not is_possible_name(scope):
            return None
        found = await self.tables.get(SCOPES_TABLE, scope)
        return None if found is None else decode(ScopeRecord, found.value)

    async def usable_scope(self, scope: str) -> ScopeRecord:
        """``ScopeNotFound`` if the scope is missing or being deleted."""
        record = await self.scope(scope)
        if record is None or record.deleting:
            raise ScopeNotFound.of(scope)
        return record

    async def still_usable(self, scope: str, record: ScopeRecord) -> bool:
        """Whether the scope is the one of the record, and open. A caller that adds a member asks again
        afterwards: a deletion closes the scope first and looks for members then, so one of the two sees the other."""
        now = await self.scope(scope)
        return now is not None and now.scope_id == record.scope_id and not now.deleting

    async def change_scope(
        self, scope: str, scope_id: str, change: Callable[[ScopeRecord], ScopeRecord]
    ) -> ScopeRecord | None:
        """Change the record of this scope, and return it; None if the scope is gone or being deleted."""

        async def write() -> ScopeRecord | None:
            found = await self.tables.get(SCOPES_TABLE, scope)
            record = None if found is None else decode(ScopeRecord, found.value)
            if found is None or record is None or record.scope_id != scope_id or record.deleting:
                return None
            changed = change(record)
            if changed != record:
                await self.tables.put(SCOPES_TABLE, scope, encode(changed), found.version)
            return changed

        return await self.compare_and_set(f"scope {scope}", write)

    async def close_scope(self, scope: str, scope_id: str, holder: str = "") -> tuple[ScopeRecord, int] | None:
        """Refuse new members from now on. The record with its version, or None if this scope is gone.

        ``holder``: the request that may open it again, also instead of another one that closed it before; a scope that
        was closed without one stays closed.
        """

        async def close() -> tuple[ScopeRecord, int] | None:
            found = await self.tables.get(SCOPES_TABLE, scope)
            if found is None:
                return None
            record = decode(ScopeRecord, found.value)
            if record.scope_id != scope_id:
                return None
            if record.deleting and record.holder in ("", holder):
                return record, found.version
            closed = dataclasses.replace(record, deleting=True, holder=holder)
            return closed, await self.tables.put(SCOPES_TABLE, scope, encode(closed), found.version)

        return await self.compare_and_set(f"scope {scope}", close)

    async def reopen_scope(self, scope: str, record: ScopeRecord, version: int) -> None:
        """Undo ``close_scope``; ``VersionConflict`` if the scope was closed by another one since."""
        opened = dataclasses.replace(record, deleting=False, holder="")
        await self.tables.put(SCOPES_TABLE, scope, encode(opened), version)

    async def scope_is_empty(self, scope: str, record: ScopeRecord) -> bool:
        pages = await all_ended(
            self.tables.scan(list_table_name(scope, record.scope_id, kind), count_max=1) for kind in SCOPE_LISTS
        )
        return not any(page.entries for page in pages)

    async def remove_scope(self, scope: str, scope_id: str, version: int | None = None) -> None:
        """Remove an empty, closed scope. Idempotent; a newer scope of the same name is left alone.

        ``version``: of the record, for a scope that somebody may open again; then ``VersionConflict`` if it changed.
        """
        if version is None:
            await self.remove_if(SCOPES_TABLE, scope, lambda value: decode(ScopeRecord, value).scope_id == scope_id)
        else:
            await self.tables.remove(SCOPES_TABLE, scope, version)
        failpoint(RECORD_REMOVED)
        await self._delete_lists(scope, scope_id)

    async def _delete_lists(self, scope: str, scope_id: str) -> None:
        await all_ended(self.tables.delete_table(list_table_name(scope, scope_id, kind)) for kind in _ALL_SCOPE_TABLES)

    async def remove_if(self, table: str, key: str, is_it: Callable[[bytes], bool]) -> None:
        """Remove an entry if its value is the one meant; nothing happens to another one under the same key."""

        async def remove() -> None:
            found = await self.tables.get(table, key)
            if found is not None and is_it(found.value):
                await self.tables.remove(table, key, found.version)

        await self.compare_and_set(f"{table}: {key!r}", remove)

    # ---- lists -------------------------------------------------------------------------------------------------------

    async def list_scopes(self, token: bytes = b"", count_max: int = page_size) -> tuple[list[str], bytes]:
        """A page of names and the token of the next; the token is empty after the last page."""
        page = await self.tables.scan(SCOPES_TABLE, token, count_max)
        return [name for name, _ in page.entries], page.continuation

    async def list_table(self, scope: str, kind: str) -> str:
        """The table of one of ``SCOPE_LISTS``; ``ScopeNotFound`` if the scope is missing."""
        record = await self.scope(scope)
        if record is None:
            raise ScopeNotFound.of(scope)
        return list_table_name(scope, record.scope_id, kind)
