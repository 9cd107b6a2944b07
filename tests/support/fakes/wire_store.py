"""Serves segments in memory over a real socket, with the append and read commands and faults on demand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pravega_common.wire import commands as c
from pravega_common.wire.append_block import AppendDecoder
from pravega_common.wire.codec import decode, decode_frame, encode
from pravega_common.wire.errors import WireDecodeError, WireProtocolError
from pravega_common.wire.framing import FrameParser
from pravega_common.wire.versions import BATCHES, OLDEST_COMPATIBLE_VERSION, READ_BATCHES, WIRE_VERSION
from pravega_streams.connection.endpoints import Endpoint


@dataclass
class FakeSegment:
    data: bytearray = field(default_factory=bytearray)
    numbers: dict[bytes, int] = field(default_factory=dict)
    start: int = 0
    sealed: bool = False
    block_sizes: list[int] = field(default_factory=list)

    def events(self) -> list[bytes]:
        """The events that were appended."""
        data, found, position = bytes(self.data), [], 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position + 4)
            found.append(data[position + 8 : position + 8 + length])
            position += 8 + length
        return found


class _Appends(AppendDecoder):
    """Those of one connection, with the last number of each writer that it knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[bytes, int] = {}


class FakeStore:
    """``before(command)`` may return ``"close"`` (drop the connection), ``"close after"``, ``"silent"`` (no reply),
    or the reply to give."""

    def __init__(self) -> None:
        self.segments: dict[str, FakeSegment] = {}
        self.read_bytes_max = 1 << 30
        self.before: Callable[[c.Command], str | c.Command | None] = lambda _: None
        self.extensions = 0
        """What it announces in Hello; with ``BATCHES`` a batch is served one request after the other."""
        self.batch_sizes: list[int] = []
        self.connection_count = 0
        self.lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def resolve(self, segment: str) -> Endpoint:
        return self.endpoint

    def token(self, segment: str) -> str:
        return ""

    def forget(self, segment: str) -> None:
        pass

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # Its thread would wait for a client that stays open.
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection_count += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        parser, decoder = FrameParser(), _Appends()
        try:
            while count := connection.recv_into(parser.get_buffer()):
                for type_code, payload in parser.buffer_updated(count):
                    if not self._handle(connection, decoder, decode(type_code, payload)):
                        return
        except (OSError, WireDecodeError, WireProtocolError):
            return
        finally:
            connection.close()

    def _handle(self, connection: socket.socket, decoder: _Appends, command: c.Command) -> bool:
        if isinstance(command, c.Hello):
            extensions = self.extensions & command.extensions
            connection.sendall(encode(c.Hello(WIRE_VERSION, OLDEST_COMPATIBLE_VERSION, extensions)))
            return True
        requests = [command]
        if isinstance(command, c.RequestBatch):
            assert self.extensions & BATCHES, "a batch for a store that did not announce them"
            requests = [decode_frame(request) for request in command.requests]
            reads = [isinstance(request, c.ReadSegment) for request in requests]
            assert self.extensions & READ_BATCHES or not any(reads), "reads for a store that takes none in a batch"
            assert all(reads) or not any(reads), "reads have batches of their own"
            self.batch_sizes.append(len(requests))
        replies = []
        for request in requests:
            with self.lock:
                fault = self.before(request)
                if fault == "close":
                    return False
                if fault == "silent":
                    continue
                reply = fault if isinstance(fault, c.Command) else self._do(decoder, request)
            if fault == "close after":
                return False
            if reply is not None:
                replies.append(reply)
        if isinstance(command, c.RequestBatch):
            replies = [c.RequestBatchAnswered(command.request_id, tuple(map(encode, replies)))]
        if replies:
            connection.sendall(b"".join(map(encode, replies)))
        return not any(isinstance(reply, c.InvalidEventNumber) for reply in replies)

    def _do(self, decoder: _Appends, command: c.Command) -> c.Command | None:
        match command:
            case c.SetupAppend():
                decoder.accept(command)
                segment = self.segments.get(command.segment)
                if segment is None:
                    return c.NoSuchSegment(command.request_id, command.segment, "", -1)
                number = segment.numbers.get(command.writer_id, c.NULL_ATTRIBUTE_VALUE)
                decoder.numbers[command.writer_id] = number
                return c.AppendSetup(command.request_id, command.segment, command.writer_id, number)
            case c.AppendBlockEnd():
                return self._append(decoder, command)
            case c.ReadSegment():
                return self._read(command)
        return None

    def _append(self, decoder: _Appends, command: c.AppendBlockEnd) -> c.Command:
        append = decoder.accept(command)
        assert append is not None
        segment = self.segments[append.segment]
        if segment.sealed:
            return c.SegmentIsSealed(append.request_id, append.segment, "", append.event_number)
        previous = segment.numbers.get(append.writer_id, c.NULL_ATTRIBUTE_VALUE)
        if previous != decoder.numbers[append.writer_id]:
            return c.InvalidEventNumber(append.writer_id, append.request_id, "", append.event_number)
        assert append.event_number > previous, "a block that was stored already came again"
        segment.numbers[append.writer_id] = decoder.numbers[append.writer_id] = append.event_number
        segment.data += b"".join(append.parts)
        segment.block_sizes.append(append.length)
        return c.DataAppended(append.writer_id, append.event_number, previous, append.request_id, len(segment.data))

    def _read(self, command: c.ReadSegment) -> c.Command:
        segment = self.segments.get(command.segment)
        if segment is None:
            return c.NoSuchSegment(command.request_id, command.segment, "", command.offset)
        if command.offset < segment.start:
            return c.SegmentIsTruncated(command.request_id, command.segment, segment.start, "", command.offset)
        length = min(command.suggested_length, self.read_bytes_max)
        data = bytes(segment.data[command.offset : command.offset + length])
        at_end = command.offset + len(data) == len(segment.data)
        return c.SegmentRead(
            command.segment, command.offset, False, segment.sealed and at_end, data, command.request_id
        )
