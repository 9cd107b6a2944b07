"""Counts the streams and segments of scopes that have a quota (docs/security.md 7).

Per scope there is a table ``useInScope``, made with the first quota: a key for each stream, by its id, with its
segments, and one with the totals. Both change in one step, so the totals are always the sums. The callers see to it
that each stream has its right number (``workflows/stream_use.py``): it is raised before segments are made, and lowered
after they are gone, within work that is repeated until it is done.
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
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.failpoints import failpoint, register

COUNTS_TABLE: Final = "useInScope"
_TOTAL: Final = "total"
_STREAM_PREFIX: Final = "stream/"

RELEASED = register("controller.use_released")

REFUSED: Final = Counter(
    "pravega_controller_quota_refusals", "Streams and segments that the quota of a scope refused", ["limit"]
)

Wanted = Callable[[int], Awaitable[int]]
"""The segments that a stream is to be counted with, from those that it is counted with, 0 for a new one."""


@dataclass(frozen=True, slots=True)
class StreamUseRecord:
    """The segments that one stream is counted with; 0 for one that is being taken out."""

    stream: str
    segments: int


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

    async def change(
        self, table: str, stream_id: str, name: str, wanted: Wanted, quota: ScopeQuota | None = None
    ) -> None:
        """Count a stream (``name``: ``scope/stream``) with as many segments as wanted, 0 for one that is gone.

        ``QuotaExceeded`` if there are more than before, and the quota does not admit them. Idempotent.
        """
        key = _STREAM_PREFIX + stream_id

        async def write() -> None:
            found_total, found = await self._tables.get_many(table, [_TOTAL, key])
            total = ScopeUse() if found_total is None else decode(ScopeUse, found_total.value)
            old = 0 if found is None else decode(StreamUseRecord, found.value).segments
            new = await wanted(old)
            if new == old:
                return
            after = ScopeUse(total.streams + (new > 0) - (old > 0), total.segments + new - old)
            if quota is not None:
                require_room(quota, name, total, after)
            total_put = Put(_TOTAL, encode(after), ABSENT if found_total is None else found_total.version)
            record = StreamUseRecord(name.partition("/")[2], new)
            await self._tables.put_many(
                table, [total_put, Put(key, encode(record), ABSENT if found is None else found.version)]
            )

        try:
            # Those of one controller in turn: all of them write the totals.
            async with self._turns.setdefault(table, asyncio.Lock()):
                await self._repeat(f"use of {table}", write)
        except SegmentNotFound:
            return

    async def release(self, table: str, stream_id: str, name: str) -> None:
        """Count a stream no more. Idempotent."""

        async def nothing(old: int) -> int:
            return 0

        await self.change(table, stream_id, name, nothing)
        failpoint(RELEASED)
        key = _STREAM_PREFIX + stream_id
        try:
            found = await self._tables.get(table, key)
            if found is not None and decode(StreamUseRecord, found.value).segments == 0:
                await self._tables.remove(table, key, found.version)
        except (SegmentNotFound, VersionConflict):
            return

    async def page(self, table: str, token: bytes) -> tuple[list[tuple[str, str]], bytes]:
        """Ids and names of counted streams, a page at a time, and the token of the next page, empty at the end."""
        try:
            found = await self._tables.scan(table, token)
        except SegmentNotFound:
            return [], b""
        counted = [
            (key.removeprefix(_STREAM_PREFIX), decode(StreamUseRecord, value.value).stream)
            for key, value in found.entries
            if key.startswith(_STREAM_PREFIX)
        ]
        return counted, found.continuation


def require_room(quota: ScopeQuota, name: str, before: ScopeUse, after: ScopeUse) -> None:
    """``QuotaExceeded`` if the use of a scope grows beyond its quota with a stream (``name``: ``scope/stream``)."""
    for what, limit, old, new in (
        ("streams", quota.streams, before.streams, after.streams),
        ("segments", quota.segments, before.segments, after.segments),
    ):
        if limit is not None and new > max(limit, old):
            raise _refused(
                what,
                f"stream {name}: scope {name.partition('/')[0]} would have {new} {what} (it has {old}), its quota is "
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
