"""Indexes the streams that have writers' marks, so that watermarks cost what such streams cost and not what all do.

One table, made with the first entry: ``scope/stream`` to ``MarkedStreamRecord``. An entry is put when a mark is new,
after the mark, and taken out, at the version that was read before the marks, by who found none. So no order of the two
loses a stream. What a crash between mark and entry leaves, the writer's next report puts right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

from controller_service.store.records import MarkedStreamRecord
from controller_service.store.serializer import encode
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ANY_VERSION
from pravega_common.errors import SegmentNotFound, VersionConflict
from pravega_common.names import MARK_PREFIX, SYSTEM_SCOPE, scoped_name

MARKED_STREAMS_TABLE: Final = "markedStreams"
known_time_s: Final = 60.0
"""After this an entry is looked for again, at the next report of a writer."""
known_max: Final = 10_000
"""Streams whose entry is remembered."""

MarkedStream = tuple[str, str, int]
"""Scope and name of a stream, and the version of its entry, read before its marks."""


class MarkedStreams:
    """Each controller remembers for itself which entries it saw."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._known: OrderedDict[str, float] = OrderedDict()
        """Name to when its entry was seen, by the monotonic clock."""

    async def note(self, scope: str, stream: str, *, is_new: bool) -> None:
        """Have the stream in the index; ``is_new``: its mark was not there before. Streams of the system are not."""
        if scope == SYSTEM_SCOPE or stream.startswith(MARK_PREFIX):
            return
        name, now_s = scoped_name(scope, stream), self._store.clock.monotonic_s()
        if not is_new and now_s - self._known.get(name, float("-inf")) < known_time_s:
            return
        if is_new or not await self._has(name):
            await self._put(name)
        self._known[name] = now_s
        self._known.move_to_end(name)
        if len(self._known) > known_max:
            self._known.popitem(last=False)

    async def pages(self) -> AsyncIterator[list[MarkedStream]]:
        """Scopes and names of all streams in the index, with the version of each entry, a page at a time."""
        continuation = b""
        while True:
            try:
                page = await self._store.tables.scan(MARKED_STREAMS_TABLE, continuation)
            except SegmentNotFound:
                return
            yield [(*_parts(name), found.version) for name, found in page.entries]
            continuation = page.continuation
            if not continuation:
                return

    async def remove(self, scope: str, stream: str, version: int) -> None:
        """Take an entry out, unless it was put again since it was read."""
        name = scoped_name(scope, stream)
        self._known.pop(name, None)
        try:
            await self._store.tables.remove(MARKED_STREAMS_TABLE, name, version)
        except (VersionConflict, SegmentNotFound):
            return

    async def _has(self, name: str) -> bool:
        try:
            return await self._store.tables.get(MARKED_STREAMS_TABLE, name) is not None
        except SegmentNotFound:
            return False

    async def _put(self, name: str) -> None:
        """Also over an entry that stands: who found no marks before must not take it out."""
        value = encode(MarkedStreamRecord(self._store.clock.wall_ms()))
        try:
            await self._store.tables.put(MARKED_STREAMS_TABLE, name, value, ANY_VERSION)
        except SegmentNotFound:
            await self._store.tables.create_table(MARKED_STREAMS_TABLE)
            await self._store.tables.put(MARKED_STREAMS_TABLE, name, value, ANY_VERSION)


def _parts(name: str) -> tuple[str, str]:
    scope, _, stream = name.partition("/")
    return scope, stream
