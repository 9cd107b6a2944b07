"""Stores the positions and times that writers report, from which watermarks are made (docs/controller-api.md 5)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from controller_service.store.records import WRITER_MARKS, WriterMark, WriterMarksRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import StreamNotFound

writers_marked_max: Final = 1_000
"""Marks kept per stream; beyond it the one with the oldest time goes."""


class NoteOutcome(enum.Enum):
    NOTED = "noted"
    INVALID_TIME = "invalid time"
    INVALID_POSITION = "invalid position"


class WriterMarks:
    def __init__(self, store: StreamStore) -> None:
        self._store = store

    async def note(
        self, scope: str, stream: str, writer: str, position: Mapping[int, int], timestamp: int
    ) -> NoteOutcome:
        """Neither time nor position may go back. ``StreamNotFound``."""
        outcome = NoteOutcome.NOTED

        async def change(context: StreamContext) -> None:
            nonlocal outcome
            marks = (await context.read(WRITER_MARKS) or WriterMarksRecord()).marks
            outcome = _judge(marks.get(writer), position, timestamp)
            if outcome is not NoteOutcome.NOTED:
                return
            await context.state()
            marks = {**marks, writer: WriterMark(timestamp, dict(position))}
            if len(marks) > writers_marked_max:
                del marks[min(marks, key=lambda name: marks[name].timestamp)]
            await context.put(WRITER_MARKS, WriterMarksRecord(marks))

        await self._store.update(scope, stream, change, WRITER_MARKS)
        return outcome

    async def remove(self, scope: str, stream: str, writer: str) -> bool:
        """Mark a writer as gone; False if it, or the stream, is not known."""
        found = False

        async def change(context: StreamContext) -> None:
            nonlocal found
            marks = (await context.read(WRITER_MARKS) or WriterMarksRecord()).marks
            mark = marks.get(writer)
            found = mark is not None
            if mark is not None and mark.is_alive:
                gone = WriterMark(mark.timestamp, mark.position, is_alive=False)
                await context.put(WRITER_MARKS, WriterMarksRecord({**marks, writer: gone}))

        try:
            await self._store.update(scope, stream, change, WRITER_MARKS)
        except StreamNotFound:
            return False
        return found


def _judge(old: WriterMark | None, position: Mapping[int, int], timestamp: int) -> NoteOutcome:
    if old is None:
        return NoteOutcome.NOTED
    if timestamp < old.timestamp:
        return NoteOutcome.INVALID_TIME
    went_back = any(position.get(identifier, offset) < offset for identifier, offset in old.position.items())
    if went_back or max(position, default=0) < max(old.position, default=0):
        return NoteOutcome.INVALID_POSITION
    return NoteOutcome.NOTED
