"""Turns append commands back into the bytes to store: a state machine without I/O (docs/wire-protocol.md 3.2, 3.3).

One ``AppendDecoder`` per connection. It knows the writers that were set up on the connection, the one block that may
be open, and the event-number order that a client must keep. It never joins bytes: an append is a tuple of views.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pravega_common.wire.commands import (
    AppendBlock,
    AppendBlockEnd,
    ByteView,
    Command,
    ConditionalAppend,
    ConditionalBlockEnd,
    Padding,
    SetupAppend,
)
from pravega_common.wire.errors import WireProtocolError

_HEADER = struct.Struct(">ii")
_PADDING = Padding.type_code
_PARTIAL_EVENT = -2


class WireAppend(NamedTuple):
    """An append as the store takes it: the bytes of one append command, stored atomically.

    ``parts`` are consecutive bytes (``length`` in total, may be 0). ``expected_offset`` is -1 for an unconditional
    append, else the length that the segment must have.
    """

    writer_id: bytes
    segment: str
    parts: tuple[ByteView, ...]
    length: int
    event_count: int
    event_number: int
    request_id: int
    expected_offset: int = -1

    @property
    def is_conditional(self) -> bool:
        return self.expected_offset >= 0


class _Writer:
    __slots__ = ("event_number", "segment")

    def __init__(self, segment: str) -> None:
        self.segment = segment
        self.event_number = 0


class AppendDecoder:
    """Reassembles appends of one connection; raises ``WireProtocolError`` for anything a client must not do."""

    __slots__ = ("_block", "_writers")

    def __init__(self) -> None:
        self._writers: dict[bytes, _Writer] = {}
        self._block: AppendBlock | None = None

    @property
    def writer_count(self) -> int:
        return len(self._writers)

    @property
    def has_open_block(self) -> bool:
        """Whether a block waits for its end."""
        return self._block is not None

    def accept(self, command: Command) -> WireAppend | None:
        """Take the next append-related command of the connection; returns an append when one is complete.

        Commands: SetupAppend (points its writer to its segment), AppendBlock, AppendBlockEnd, ConditionalAppend,
        ConditionalBlockEnd and Padding. Others must not be given.
        """
        if isinstance(command, AppendBlockEnd):
            return self._end_block(command)
        if self._block is not None:
            raise WireProtocolError(type(command).__name__, "an append block is open on this connection")
        if isinstance(command, AppendBlock):
            self._writer_of(command)
            self._block = command
            return None
        if isinstance(command, ConditionalBlockEnd):
            return self._conditional(command, (command.data,))
        if isinstance(command, ConditionalAppend):
            return self._conditional(command, (_HEADER.pack(0, len(command.data)), command.data))
        if isinstance(command, SetupAppend):
            self._writers[command.writer_id] = _Writer(command.segment)
            return None
        if isinstance(command, Padding):
            return None
        raise WireProtocolError(type(command).__name__, "not an append command")

    def forget(self, writer_id: bytes, segment: str) -> None:
        """Drop a writer that was refused: it must set up again before it may append."""
        writer = self._writers.get(writer_id)
        if writer is not None and writer.segment == segment:
            del self._writers[writer_id]

    def _writer_of(self, command: AppendBlock | AppendBlockEnd | ConditionalAppend | ConditionalBlockEnd) -> _Writer:
        writer = self._writers.get(command.writer_id)
        if writer is None:
            name = type(command).__name__
            raise WireProtocolError(name, f"writer {command.writer_id.hex()} was not set up on this connection")
        return writer

    def _advance(self, writer: _Writer, event_number: int, command: str) -> None:
        if event_number < writer.event_number:
            raise WireProtocolError(command, f"event number {event_number} after {writer.event_number}")
        writer.event_number = event_number

    def _end_block(self, end: AppendBlockEnd) -> WireAppend:
        writer = self._writer_of(end)
        if end.num_events <= 0:
            raise WireProtocolError("AppendBlockEnd", f"{end.num_events} events in a block")
        self._advance(writer, end.last_event_number, "AppendBlockEnd")
        block, self._block = self._block, None
        parts = (end.data,) if block is None else _join_block(block, end)
        return WireAppend(
            end.writer_id,
            writer.segment,
            parts,
            sum(map(len, parts)),
            end.num_events,
            end.last_event_number,
            end.request_id,
        )

    def _conditional(self, command: ConditionalAppend | ConditionalBlockEnd, parts: tuple[ByteView, ...]) -> WireAppend:
        writer = self._writer_of(command)
        name = type(command).__name__
        if command.expected_offset < 0:
            raise WireProtocolError(name, f"negative expected offset {command.expected_offset}")
        self._advance(writer, command.event_number, name)
        return WireAppend(
            command.writer_id,
            writer.segment,
            parts,
            sum(map(len, parts)),
            1,
            command.event_number,
            command.request_id,
            command.expected_offset,
        )


def _join_block(block: AppendBlock, end: AppendBlockEnd) -> tuple[ByteView, ...]:
    """The stored bytes of a block and its end: whole events, then what the one closing item says."""
    data, size = memoryview(block.data), end.size_of_whole_events
    if block.writer_id != end.writer_id:
        raise WireProtocolError("AppendBlockEnd", "the open block belongs to another writer")
    if not 0 <= size <= len(data):
        raise WireProtocolError("AppendBlockEnd", f"{size} bytes of whole events in a block of {len(data)}")
    whole, rest = data[:size], data[size:]
    if not len(rest):
        return (whole,)
    if len(rest) < 8:
        raise WireProtocolError("AppendBlockEnd", f"{len(rest)} bytes at the end of a block are no item")
    item_type, length = _HEADER.unpack_from(rest)
    if not 0 <= length <= len(rest) - 8:
        raise WireProtocolError("AppendBlockEnd", f"last item of {length} bytes in {len(rest) - 8} bytes of a block")
    if item_type == _PARTIAL_EVENT:
        return tuple(part for part in (whole, rest[8 : 8 + length], end.data) if len(part))
    if item_type == _PADDING and not len(end.data):
        return (whole,)
    raise WireProtocolError(
        "AppendBlockEnd", f"a block ends with an item of type {item_type} and {len(end.data)} bytes after it"
    )
