"""Stores the positions and times that writers report, from which watermarks are made (docs/controller-api.md 5).

Each writer has a key of its own in a table of the stream that is created with the first mark. A mark expires when its
writer reports nothing for the stream's timestamp aggregation timeout: the writer may then report any position and
time. It is removed when it counts for no watermark any more (``watermarks/participation.py``). When new writers come,
marks older than a day are removed, a few at a time. The streams that have marks are in an index
(``marked_streams.py``).
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Final

from controller_service.store.marked_streams import MarkedStreams
from controller_service.store.records import WRITER_MARKS, WriterMark
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ABSENT, Versioned
from pravega_common.errors import InvalidArgument, SegmentNotFound, StreamNotFound, VersionConflict
from pravega_common.names import segments_per_stream_max

writer_bytes_max: Final = 1_024
"""UTF-8 bytes of a writer's name, which is a key of a table."""
mark_life_default_ms: Final = 24 * 3_600_000
"""Life of a mark after its last report, in streams whose configuration has no timestamp aggregation timeout; in others
the least time that it counts if it is ahead of the last watermark."""
marks_swept_per_writer: Final = 10
"""Marks looked at for each new writer, so that a table is gone through faster than it grows."""
marks_per_page: Final = 10
"""Marks of one read; one of a writer in the most segments takes 200 kB."""
sweeps_remembered_max: Final = 10_000
"""Streams whose place of the next sweep is remembered."""


class NoteOutcome(enum.Enum):
    NOTED = "noted"
    INVALID_TIME = "invalid time"
    INVALID_POSITION = "invalid position"


class WriterMarks:
    """Positions in sweeps are remembered by each controller for itself."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self.streams = MarkedStreams(store)
        self._sweeps: OrderedDict[str, bytes] = OrderedDict()
        """Table to the place where its next sweep begins."""

    async def note(
        self, scope: str, stream: str, writer: str, position: Mapping[int, int], timestamp: int
    ) -> NoteOutcome:
        """Neither time nor position may go back. ``StreamNotFound``; ``InvalidArgument`` for a name or a position that
        no record holds."""
        _check(writer, position)
        context = await self._open(scope, stream)
        life_ms = await _life_ms(context)
        is_new = False

        async def note() -> NoteOutcome:
            nonlocal is_new
            now_ms = self._store.clock.wall_ms()
            found = await self._find(context, writer)
            old = None if found is None else decode(WriterMark, found.value)
            if old is not None and _is_expired(old, life_ms, now_ms):
                old = None
            outcome = _judge(old, position, timestamp)
            if outcome is NoteOutcome.NOTED:
                # A repetition after a lost answer finds its own mark.
                is_new = is_new or found is None
                mark = WriterMark(timestamp, dict(position), noted_ms=now_ms)
                await self._put(context, writer, mark, ABSENT if found is None else found.version)
            return outcome

        outcome = await self._store.compare_and_set(f"mark of writer {writer!r} of stream {context.name}", note)
        if outcome is NoteOutcome.NOTED:
            # Behind the mark: the index never loses a stream whose mark it was asked to hold.
            await self.streams.note(scope, stream, is_new=is_new)
        if is_new:
            # The mark of a silent writer that is ahead of the last watermark counts for the next one.
            await self._sweep(context, max(life_ms, mark_life_default_ms))
        return outcome

    async def remove(self, scope: str, stream: str, writer: str) -> bool:
        """Mark a writer as gone; False if it, or the stream, is not known."""
        if not 0 < len(writer.encode()) <= writer_bytes_max:
            return False
        try:
            context = await self._open(scope, stream)
        except StreamNotFound:
            return False
        life_ms = await _life_ms(context)

        async def remove() -> bool:
            found = await self._find(context, writer)
            if found is None:
                return False
            mark = decode(WriterMark, found.value)
            if _is_expired(mark, life_ms, self._store.clock.wall_ms()):
                return False
            if mark.is_alive:
                gone = WriterMark(mark.timestamp, mark.position, is_alive=False, noted_ms=mark.noted_ms)
                await self._store.tables.put(context.marks_table, writer, encode(gone), found.version)
            return True

        return await self._store.compare_and_set(f"mark of writer {writer!r} of stream {context.name}", remove)

    async def get(self, scope: str, stream: str, writer: str) -> WriterMark | None:
        """None for a writer that is not known, or whose mark expired."""
        context = await self._open(scope, stream)
        found = await self._find(context, writer)
        mark = None if found is None else decode(WriterMark, found.value)
        if mark is None or _is_expired(mark, await _life_ms(context), self._store.clock.wall_ms()):
            return None
        return mark

    async def all_of(self, scope: str, stream: str) -> AsyncIterator[tuple[str, WriterMark, int]]:
        """Each writer with its mark, expired or not, and the version for ``forget``. ``StreamNotFound``."""
        context = await self._open(scope, stream)
        continuation = b""
        while True:
            try:
                page = await self._store.tables.scan(context.marks_table, continuation, marks_per_page)
            except SegmentNotFound:
                return
            for writer, found in page.entries:
                yield writer, decode(WriterMark, found.value), found.version
            continuation = page.continuation
            if not continuation:
                return

    async def forget(self, context: StreamContext, writer: str, version: int) -> bool:
        """Remove a mark; False if its writer reported since it was read."""
        try:
            await self._store.tables.remove(context.marks_table, writer, version)
        except VersionConflict:
            return False
        except SegmentNotFound:
            return True
        return True

    # ---- the table ---------------------------------------------------------------------------------------------------

    async def _open(self, scope: str, stream: str) -> StreamContext:
        context = await self._store.open(scope, stream, WRITER_MARKS)
        await context.state()
        if await context.read(WRITER_MARKS) is not None:
            await self._move_old(context)
        return context

    async def _move_old(self, context: StreamContext) -> None:
        """Move marks that are in one record of the stream, where they were kept before, to keys of their own."""
        table, key = context.metadata_table, WRITER_MARKS.name
        found = await self._store.tables.get(table, key)
        if found is None:
            return
        now_ms = self._store.clock.wall_ms()
        for writer, mark in decode(WRITER_MARKS.record, found.value).marks.items():
            if not 0 < len(writer.encode()) <= writer_bytes_max:
                continue
            moved = WriterMark(mark.timestamp, mark.position, mark.is_alive, now_ms)
            try:
                await self._put(context, writer, moved, ABSENT)
            except VersionConflict:
                # Moved by an earlier attempt or another controller, or reported since.
                continue
        try:
            await self._store.tables.remove(table, key, found.version)
        except VersionConflict:
            # Another controller removed it, or one of before wrote to it: then it is moved at the next use.
            return

    async def _find(self, context: StreamContext, writer: str) -> Versioned | None:
        try:
            return await self._store.tables.get(context.marks_table, writer)
        except SegmentNotFound:
            return None

    async def _put(self, context: StreamContext, writer: str, mark: WriterMark, expected: int) -> None:
        value = encode(mark)
        try:
            await self._store.tables.put(context.marks_table, writer, value, expected)
            return
        except SegmentNotFound:
            await self._store.tables.create_table(context.marks_table)
        # A deletion of the stream removes the metadata first and this table last: one of the two sees the other.
        try:
            await self._store.tables.get(context.metadata_table, WRITER_MARKS.name)
        except SegmentNotFound as error:
            await self._store.tables.delete_table(context.marks_table)
            self._store.forget(context.scope, context.stream)
            raise StreamNotFound.of(context.scope, context.stream) from error
        await self._store.tables.put(context.marks_table, writer, value, expected)

    async def _sweep(self, context: StreamContext, life_ms: int) -> None:
        """Remove those older than ``life_ms`` among the next few marks."""
        table = context.marks_table
        page = await self._store.tables.scan(table, self._sweeps.pop(table, b""), marks_swept_per_writer)
        now_ms = self._store.clock.wall_ms()
        for writer, found in page.entries:
            if _is_expired(decode(WriterMark, found.value), life_ms, now_ms):
                try:
                    await self._store.tables.remove(table, writer, found.version)
                except VersionConflict:
                    # Reported again, or removed by another controller.
                    continue
        if page.continuation:
            self._sweeps[table] = page.continuation
            if len(self._sweeps) > sweeps_remembered_max:
                self._sweeps.popitem(last=False)


def check_writer(writer: str) -> None:
    """``InvalidArgument`` for a name that no mark is kept under."""
    length = len(writer.encode())
    if not 0 < length <= writer_bytes_max:
        raise InvalidArgument(f"the writer's name has {length} bytes, must have 1 to {writer_bytes_max}")


def _check(writer: str, position: Mapping[int, int]) -> None:
    check_writer(writer)
    if len(position) > segments_per_stream_max:
        raise InvalidArgument(f"a position in {len(position)} segments, at most {segments_per_stream_max} are possible")


async def _life_ms(context: StreamContext) -> int:
    timeout_ms = (await context.configuration()).configuration.timestamp_aggregation_timeout_ms
    return timeout_ms if timeout_ms > 0 else mark_life_default_ms


def _is_expired(mark: WriterMark, life_ms: int, now_ms: int) -> bool:
    return now_ms - mark.noted_ms > life_ms


def _judge(old: WriterMark | None, position: Mapping[int, int], timestamp: int) -> NoteOutcome:
    if old is None:
        return NoteOutcome.NOTED
    if timestamp < old.timestamp:
        return NoteOutcome.INVALID_TIME
    went_back = any(position.get(identifier, offset) < offset for identifier, offset in old.position.items())
    if went_back or max(position, default=0) < max(old.position, default=0):
        return NoteOutcome.INVALID_POSITION
    return NoteOutcome.NOTED
