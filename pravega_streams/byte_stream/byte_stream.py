"""Reads and appends the bytes of a stream of one segment, for code without an event loop."""

from __future__ import annotations

import io
import os
import sys
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pravega_common.errors import (
    InvalidArgument,
    SegmentSealed,
    SegmentTruncated,
    StreamSealed,
    Unavailable,
)
from pravega_common.names import segment_name
from pravega_streams.byte_stream.tail_reader import TailReader
from pravega_streams.client import StreamClient
from pravega_streams.event.block_writer import BlockWriter, BlockWriters, Piece
from pravega_streams.event.write_budget import block_bytes_max

piece_bytes_max: Final = block_bytes_max
"""Bytes of one append."""
read_bytes_max: Final = 2 * 1024 * 1024
"""Bytes of one read: no store sends more at once."""
line_read_bytes: Final = 4 * 1024
"""Bytes of one read for a line. Those behind it are read again for the next one: they cost less than a request."""
read_time_default_s: Final = 10.0
"""How long a read waits at the tail by default."""


class ByteStream(io.RawIOBase):
    """A file over a stream of one segment. Writes go to the end; ``seek`` and ``tell`` are about reading.

    Threads may share it to write, and one at a time may read beside them. ``io.BufferedReader`` may stand before it.
    ``with`` closes it, and flushes nothing where an error leaves it after stores acknowledged nothing for an hour.
    Errors: ``InvalidArgument`` for a stream of several segments, ``StreamSealed``, ``SegmentTruncated`` for an offset
    before the head, ``NotFound``, those of ``BlockWriter``, and ``ValueError`` after ``close``, as of any file.
    """

    def __init__(
        self, client: StreamClient, scope: str, stream: str, *, read_time_s: float = read_time_default_s
    ) -> None:
        super().__init__()
        current = [item.segment_id for item in client.controller.current_segments(scope, stream)]
        ids = current or list(client.tail_cut(scope, stream))
        if len(ids) != 1:
            raise InvalidArgument(f"{scope}/{stream} has {len(ids)} segments; a byte stream has 1")
        self.segment = segment_name(scope, stream, ids[0])
        self._client = client
        self._read_time_s = read_time_s
        self._offset = self.current_head_offset()
        self._reader = TailReader(self.segment, client.segments)
        self._turn = threading.RLock()
        """Held by a call that writes. As a Ctrl-C in Python 3.14 may leave it held by its thread, that may go on."""
        self._writers: BlockWriters | None = None
        self._writer: BlockWriter | None = None
        self._unwritten: deque[Piece] = deque()
        """Pieces that the writer does not have, in the order in which they were written: they leave first."""

    # ---- appending

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Append the bytes of any buffer, which are copied; they are durable after ``flush``. Returns their number.

        Also bytes whose ``write`` raised are this stream's, all of them and in their place: they are durable once
        ``flush`` returns, and not to be written again. Only a sealed stream never has them.
        """
        copy = memoryview(bytes(memoryview(data)))
        with self._turn:
            self._check_open()
            self._unwritten.extend(
                [Piece(copy[at : at + piece_bytes_max], 1) for at in range(0, len(copy), piece_bytes_max)]
            )
            try:
                self._write_unwritten()
            except SegmentSealed as error:
                self._unwritten.clear()
                raise StreamSealed(f"{self.segment} is sealed and takes no more bytes") from error
        return len(copy)

    def flush(self) -> None:
        """Return when everything written is durable."""
        with self._turn:
            super().flush()
            try:
                self._write_unwritten()
                if self._writer is not None:
                    self._writer.flush()
            except SegmentSealed as error:
                self._unwritten.clear()
                raise StreamSealed(f"{self.segment} was sealed before it took all bytes") from error

    def truncate(self, size: int | None = None) -> int:
        """Forget what lies before an offset, by default before the reading position. Returns the offset."""
        offset = self._offset if size is None else size
        try:
            self._client.segments.truncate(self.segment, offset)
        except SegmentTruncated as error:
            if offset < error.start_offset:
                raise
            # A store gives one answer for both sides of what it has.
            raise InvalidArgument(f"{self.segment} cannot be truncated at {offset}: it ends before") from error
        return offset

    def seal(self) -> None:
        """Take no more bytes; what was written is durable before. Nothing happens if the stream is sealed."""
        self.flush()
        with suppress(SegmentSealed):  # By an attempt whose answer was lost, or by somebody else.
            self._client.segments.seal(self.segment)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"the byte stream of {self.segment} is closed")

    def _write_unwritten(self) -> None:
        while self._unwritten:
            self._append().write_first(self._unwritten)

    def _append(self) -> BlockWriter:
        if self._writer is None:
            self._writers = BlockWriters(self._client.segments.endpoints)
            self._writer = self._writers.open(self.segment, uuid.uuid4().bytes)
        return self._writer

    # ---- reading

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Fill a buffer as far as there is something; 0 at the end of a sealed stream, None if nothing came in time."""
        target = memoryview(buffer).cast("B")
        if not len(target):
            return 0
        data = self._read(min(len(target), read_bytes_max))
        if data is None:
            return None
        target[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def readall(self) -> bytes:
        """Read to the end of a sealed stream, or to where nothing more came in time; None if nothing did."""
        with self._put_back():
            return super().readall()

    def readline(self, size: int | None = -1) -> bytes:
        """Read a line, or up to ``size`` bytes of it; ``Unavailable`` if its end did not come in time."""
        line, limit = bytearray(), sys.maxsize if size is None or size < 0 else size
        with self._put_back():
            while len(line) < limit and not line.endswith(b"\n"):
                data = self._read(min(line_read_bytes, limit - len(line)))
                if data is None:
                    raise Unavailable(f"{self.segment}: no whole line came within {self._read_time_s:.0f} s")
                if not len(data):
                    break
                begun, newline, _ = bytes(data).partition(b"\n")
                line += begun + newline
                self._offset += len(begun) + len(newline)
        return bytes(line)

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """Read the lines up to the end of a sealed stream, or ``hint`` bytes and more; otherwise as ``readline``."""
        with self._put_back():
            return super().readlines(-1 if hint is None else hint)

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Go back to where a call began that fails midway, as nobody gets what it has read."""
        offset = self._offset
        try:
            yield
        except BaseException:
            self._offset = offset
            raise

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Read from an offset next; from ``SEEK_END`` on, of the present tail."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset}.get(whence)
        wanted = (self.current_tail_offset() if base is None else base) + offset
        if wanted < 0:
            raise InvalidArgument(f"{self.segment}: offset {wanted} lies before the beginning")
        self._offset = wanted
        return wanted

    def tell(self) -> int:
        return self._offset

    def current_head_offset(self) -> int:
        """The first offset that is still there."""
        return self._client.segments.info(self.segment).start_offset

    def current_tail_offset(self) -> int:
        """The offset behind the last byte that is durable."""
        return self._client.segments.info(self.segment).length

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        with self._turn:
            if kind is not None and self._writers is not None and self._writers.has_given_up:
                # Its error is on its way already, and a flush would wait for as long once more.
                self._unwritten.clear()
                self._writer = None
            super().__exit__(kind, *rest)

    def close(self) -> None:
        """Flush and give the connections up."""
        if self.closed:
            return
        with self._turn:
            try:
                super().close()
            finally:
                self._reader.close()
                if self._writers is not None:
                    self._writers.close()

    def _read(self, length: int) -> memoryview | None:
        self._check_open()
        return self._reader.read(self._offset, length, self._read_time_s)
