"""Counts the streams and segments of scopes that have a quota (docs/security.md 7).

Per scope there is a table ``useInScope``, made with the first quota: a key for each stream and each key-value table, by
its id, with its segments, and one with the totals. A key-value table counts by its segments alone. Both change in one
step, so the totals are always the sums. The callers see to it that each stream and table has its right number
(``workflows/stream_use.py``): it is raised before segments are made, and lowered after they are gone, within work that
is repeated until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from prometheus_client import Counter

from controller_service.errors import QuotaExceeded
from controller_service.store.serializer import decode, encode
from controller_service.store.tag_index import Repeat
from controller_service.store.versioned_store import ABSENT, Put, VersionedStore
from pravega_common.errors import SegmentNotFound, VersionConflict
from pravega_common.model.scope_quota import ScopeQuota, ScopeUse
from pravega_common.names import MARK_PREFIX, scoped_name
from pravega_common.runtime.failpoints import failpoint, register

COUNTS_TABLE: Final = "useInScope"
_TOTAL: Final = "total"
_STREAM_PREFIX: Final = "stream/"
_KEY_VALUE_TABLE_PREFIX: Final = "table/"

RELEASED = register("controller.use_released")

REFUSED: Final = Counter(
    "pravega_controller_quota_refusals", "Streams and segments that the quota of a scope refused", ["limit"]
)

Wanted = Callable[[int], Awaitable[int]]
"""The segments that a stream is to be counted with, from those that it is counted with, 0 for a new one."""


@dataclass(frozen=True, slots=True)
class StreamUseRecord:
    """The segments that one stream or key-value table is counted with; 0 for one that is being taken out."""

    stream: str
    segments: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A stream or key-value table that is counted, by its id and its name (``scope/name``)."""

    id: str
    name: str
    is_table: bool = False

    @property
    def key(self) -> str:
        return (_KEY_VALUE_TABLE_PREFIX if self.is_table else _STREAM_PREFIX) + self.id

    def __str__(self) -> str:
        return f"{'key-value table' if self.is_table else 'stream'} {self.name}"


class ScopeCounts:
    """Tables are named by the caller, who knows the scope's id; without a table nothing is counted."""

    def __init__(self, tables: VersionedStore, repeat: Repeat) -> None:
        self._tables = tables
        self._repeat = repeat
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def total(self, table: str) -> ScopeUse:
        try:
            found = await self._tables.get(table, _TOTAL)
        except SegmentNotFound:
            return ScopeUse()
        return ScopeUse() if found is None else decode(ScopeUse, found.value)

    async def change(self, table: str, one: Counted, wanted: Wanted, quota: ScopeQuota | None = None) -> None:
        """Count a stream or key-value table with as many segments as wanted, 0 for one that is gone.

        ``QuotaExceeded`` if there are more than before, and the quota does not admit them. Idempotent.
        """
        key = one.key

        async def write() -> None:
            found_total, found = await self._tables.get_many(table, [_TOTAL, key])
            total = ScopeUse() if found_total is None else decode(ScopeUse, found_total.value)
            old = 0 if found is None else decode(StreamUseRecord, found.value).segments
            new = await wanted(old)
            if new == old:
                return
            streams = 0 if one.is_table else (new > 0) - (old > 0)
            after = ScopeUse(total.streams + streams, total.segments + new - old)
            if quota is not None:
                require_room(quota, one, total, after)
            total_put = Put(_TOTAL, encode(after), ABSENT if found_total is None else found_total.version)
            record = StreamUseRecord(one.name.partition("/")[2], new)
            await self._tables.put_many(
                table, [total_put, Put(key, encode(record), ABSENT if found is None else found.version)]
            )

        try:
            # Those of one controller in turn: all of them write the totals.
            async with self._turns.setdefault(table, asyncio.Lock()):
                await self._repeat(f"use of {table}", write)
        except SegmentNotFound:
            return

    async def release(self, table: str, one: Counted) -> None:
        """Count a stream or key-value table no more. Idempotent."""

        async def nothing(old: int) -> int:
            return 0

        await self.change(table, one, nothing)
        failpoint(RELEASED)
        key = one.key
        try:
            found = await self._tables.get(table, key)
            if found is not None and decode(StreamUseRecord, found.value).segments == 0:
                await self._tables.remove(table, key, found.version)
        except (SegmentNotFound, VersionConflict):
            return

    async def page(self, table: str, scope: str, token: bytes) -> tuple[list[Counted], bytes]:
        """Streams and tables that are counted, a page at a time, and the token of the next page, empty at the end."""
        try:
            found = await self._tables.scan(table, token)
        except SegmentNotFound:
            return [], b""
        counted = []
        for key, value in found.entries:
            kind, _, counted_id = key.partition("/")
            if counted_id:
                name = scoped_name(scope, decode(StreamUseRecord, value.value).stream)
                counted.append(Counted(counted_id, name, kind + "/" == _KEY_VALUE_TABLE_PREFIX))
        return counted, found.continuation


def require_room(quota: ScopeQuota, one: Counted, before: ScopeUse, after: ScopeUse) -> None:
    """``QuotaExceeded`` if the use of a scope grows beyond its quota with a stream or key-value table."""
    for what, limit, old, new in (
        ("streams", quota.streams, before.streams, after.streams),
        ("segments", quota.segments, before.segments, after.segments),
    ):
        if limit is not None and new > max(limit, old):
            raise _refused(
                what,
                f"{one}: scope {one.name.partition('/')[0]} would have {new} {what} (it has {old}), its quota is "
                f"{limit}; delete streams that are not needed, merge segments, or ask an operator for a higher quota",
            )


def refused_mark_stream(scope: str, stream: str) -> QuotaExceeded:
    """The refusal of what a caller would make under a name that is not counted."""
    return _refused(
        "streams",
        f"stream {scope}/{stream}: streams whose names begin with {MARK_PREFIX} are the system's own and not counted; "
        "in a scope with a quota they are neither made nor scaled by callers: choose another name",
    )


def _refused(what: str, reason: str) -> QuotaExceeded:
    REFUSED.labels(what).inc()
    return QuotaExceeded(reason)
