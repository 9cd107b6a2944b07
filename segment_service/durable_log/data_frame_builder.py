"""Packs records into data frames. Pure: it sends nothing and never waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from crc32c import crc32c

from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.checksums import checksum_of
from segment_service.contracts.data_log import frame_bytes_max
from segment_service.durable_log.data_frame import (
    ENTRY,
    ENTRY_BEGINS,
    ENTRY_ENDS,
    ENTRY_WHOLE,
    FLAG_CHECKPOINT,
    FRAME_MAGIC,
    FRAME_VERSION,
    HEADER,
    TRAILER,
    entry_bytes_min,
)

Tag = TypeVar("Tag")

_entries_end_max: Final = frame_bytes_max - TRAILER.size
_empty_length: Final = HEADER.size + ENTRY.size
_whole_from: Final = frame_bytes_max * 7 // 8
"""Filled bytes from which on a frame is closed before a record that the next one takes whole: the pieces of appends of
almost a frame cost more than the room that stays free."""


class BuiltFrame(Generic[Tag]):
    """A closed frame: its bytes as buffers with their CRC32C, and the tags of the records that end in it, in order."""

    __slots__ = ("begins_with_checkpoint", "buffers", "checksum", "completed", "length")

    def __init__(
        self, buffers: list[Buffer], checksum: int, length: int, completed: list[Tag], begins_with_checkpoint: bool
    ) -> None:
        self.buffers = buffers
        self.checksum = checksum
        self.length = length
        self.completed = completed
        self.begins_with_checkpoint = begins_with_checkpoint


class DataFrameBuilder(Generic[Tag]):
    """Records go in with ``add``, closed frames come out of ``full``; ``close`` ends a frame that is not full.

    The bytes of a record are kept as the views that came in: a large one is cut into slices, never copied.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.full: deque[BuiltFrame[Tag]] = deque()
        self._reset()

    def _reset(self) -> None:
        self._buffers: list[Buffer] = [b""]
        self._length = HEADER.size
        self._first_record = 0
        self._completed: list[Tag] = []
        self._flags = 0

    @property
    def is_empty(self) -> bool:
        """Whether the open frame has no bytes of a record."""
        return self._length == HEADER.size

    def add(self, head: bytes, body: Sequence[Buffer], length: int, tag: Tag) -> None:
        """Add a record of ``length`` bytes (head, then body); ``tag`` completes with the frame of its last byte."""
        end = self._length + ENTRY.size + length
        if end > _entries_end_max:
            if self._length < _whole_from or _empty_length + length > _entries_end_max:
                self._add_in_pieces(head, body, length, tag)
                return
            self.close()
            end = self._length + ENTRY.size + length
        if not self._first_record:
            self._first_record = self._length
        buffers = self._buffers
        buffers.append(ENTRY.pack(ENTRY_WHOLE, length) + head)
        buffers.extend(body)
        self._completed.append(tag)
        self._length = end

    def add_checkpoint(self, head: bytes, body: Sequence[Buffer], length: int, tag: Tag) -> None:
        """Add a record that begins a new frame, and mark that frame as a truncation point."""
        self.close()
        self._flags = FLAG_CHECKPOINT
        self.add(head, body, length, tag)

    def attach(self, tag: Tag) -> bool:
        """Let ``tag`` complete with the open frame, without bytes; ``False`` if no frame is open."""
        if self.is_empty:
            return False
        self._completed.append(tag)
        return True

    def close(self) -> None:
        """Move the open frame, if it has bytes, to ``full``."""
        if self.is_empty:
            check(not self._completed, "tags without bytes", count=len(self._completed))
            return
        entries_length = self._length - HEADER.size
        self._buffers[0] = HEADER.pack(
            FRAME_MAGIC, FRAME_VERSION, self._flags, self._epoch, self._first_record, entries_length
        )
        checksum = checksum_of(self._buffers)
        trailer = TRAILER.pack(checksum)
        self._buffers.append(trailer)
        length = self._length + TRAILER.size
        check(length <= frame_bytes_max, "a frame grew beyond its limit", length=length)
        frame = BuiltFrame(
            self._buffers,
            crc32c(trailer, checksum),
            length,
            self._completed,
            begins_with_checkpoint=bool(self._flags),
        )
        self.full.append(frame)
        self._reset()

    def open_tags(self) -> list[Tag]:
        """Tags that would complete with frames not taken yet, in order; for the failure path."""
        return [tag for frame in self.full for tag in frame.completed] + self._completed

    def _add_in_pieces(self, head: bytes, body: Sequence[Buffer], length: int, tag: Tag) -> None:
        pieces = _Pieces([head, *body])
        flags = ENTRY_BEGINS
        remaining = length
        while remaining:
            room = _entries_end_max - self._length - ENTRY.size
            if room < min(entry_bytes_min, remaining):
                self.close()
                continue
            size = min(room, remaining)
            remaining -= size
            if flags & ENTRY_BEGINS and not self._first_record:
                self._first_record = self._length
            self._buffers.append(ENTRY.pack(flags | (0 if remaining else ENTRY_ENDS), size))
            self._buffers.extend(pieces.take(size))
            self._length += ENTRY.size + size
            flags = 0
        self._completed.append(tag)


class _Pieces:
    """A list of buffers that is consumed from the front, in slices."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self._views = deque(memoryview(buffer).cast("B") for buffer in buffers if len(buffer))

    def take(self, size: int) -> list[Buffer]:
        taken: list[Buffer] = []
        while size:
            view = self._views.popleft()
            if len(view) > size:
                self._views.appendleft(view[size:])
                view = view[:size]
            taken.append(view)
            size -= len(view)
        return taken
