"""Indexes the streams that have writers' marks, so that watermarks cost what such streams cost and not what all do.

An entry is put when a mark is new, after the mark, and taken out by who found no marks. What a crash between mark and
entry leaves, the writer's next report puts right.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

from controller_service.store.indexed_streams import IndexedStreams
from controller_service.store.records import MarkedStreamRecord
from controller_service.store.serializer import encode
from controller_service.store.stream_store import StreamStore
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
        self._index = IndexedStreams(store.tables, MARKED_STREAMS_TABLE)
        self._clock = store.clock
        self._known: OrderedDict[str, float] = OrderedDict()
        """Name to when its entry was seen, by the monotonic clock."""

    async def note(self, scope: str, stream: str, *, is_new: bool) -> None:
        """Have the stream in the index; ``is_new``: its mark was not there before. Streams of the system are not."""
        if scope == SYSTEM_SCOPE or stream.startswith(MARK_PREFIX):
            return
        name, now_s = scoped_name(scope, stream), self._clock.monotonic_s()
        if not is_new and now_s - self._known.get(name, float("-inf")) < known_time_s:
            return
        if is_new or not await self._index.has(name):
            await self._index.put(name, encode(MarkedStreamRecord(self._clock.wall_ms())))
        self._known[name] = now_s
        self._known.move_to_end(name)
        if len(self._known) > known_max:
            self._known.popitem(last=False)

    async def pages(self) -> AsyncIterator[list[MarkedStream]]:
        """Scopes and names of all streams in the index, with the version of each entry, a page at a time."""
        async for page in self._index.pages():
            yield [(scope, stream, found.version) for scope, stream, found in page]

    async def remove(self, scope: str, stream: str, version: int) -> None:
        """Take an entry out, unless it was put again since it was read."""
        self._known.pop(scoped_name(scope, stream), None)
        await self._index.remove(scope, stream, version)
