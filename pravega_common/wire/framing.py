"""Cuts frames out of a byte stream, without I/O and without copies (docs/wire-protocol.md 1.1).

The parser owns the receive buffer that the transport fills (``asyncio.BufferedProtocol``). A payload is handed out as
a read-only view of that buffer and stays valid for as long as somebody holds it: a buffer is only ever filled further,
and when it is used up a new one is allocated, to which at most the one unfinished frame is copied. The parser itself
keeps none that is used up: a connection that is idle after a large frame holds no memory for it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Final

from pravega_common.wire.codec import frame_header_bytes, payload_bytes_max
from pravega_common.wire.errors import WireDecodeError

buffer_bytes_min: Final = 64 * 1024
"""Size of a connection's first receive buffer."""
buffer_bytes_max: Final = 1024 * 1024
"""Size that receive buffers grow to while a peer fills them; a larger frame gets a buffer of its own size."""
receive_bytes_min: Final = 4 * 1024
"""A buffer with less free space than this is given up for a new one."""

_HEADER = struct.Struct(">ii")
_NO_BUFFER: Final = memoryview(b"")
_TLS_HANDSHAKE: Final = 0x1603
"""The first two bytes of a TLS handshake (RFC 8446, 5.1), which begin no command's type."""

Frame = tuple[int, memoryview]
"""Type code and payload."""


def untouched_buffer(size: int) -> memoryview:
    """Returns uninitialised memory: of what a peer announces, only what it sends costs memory."""
    import numpy as np  # takes longer to import than most questions of a command take

    return np.empty(size, dtype=np.uint8).data


def small_buffer(size: int) -> memoryview:
    """Returns a buffer for a process with few connections: up to the first size without NumPy, which it may spare."""
    return memoryview(bytearray(size)) if size <= buffer_bytes_min else untouched_buffer(size)


class FrameParser:
    """Turns received bytes into frames.

    Use either ``get_buffer`` / ``buffer_updated`` (the transport writes into the buffer) or ``feed`` (bytes are
    copied in). Frames before a malformed header are still returned; ``failure`` then says what is wrong, and the
    next ``get_buffer`` or ``feed`` raises it. ``begins_tls``: that the peer sends a TLS handshake is what is wrong.
    ``new_buffer`` makes the receive buffers. ``frames_max``: frames that are cut out at once; ``has_more`` says that
    others may be there, which ``more`` cuts out.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_frames_max",
        "_new_buffer",
        "_next_size",
        "_parsed",
        "_payload_bytes_max",
        "_readable",
        "begins_tls",
        "failure",
        "has_more",
    )

    def __init__(
        self,
        payload_limit_bytes: int = payload_bytes_max,
        new_buffer: Callable[[int], memoryview] = untouched_buffer,
        frames_max: int = sys.maxsize,
    ) -> None:
        self._new_buffer = new_buffer
        self._frames_max = frames_max
        self.has_more = False
        self.failure: WireDecodeError | None = None
        self.begins_tls = False
        self._payload_bytes_max = payload_limit_bytes
        self._next_size = buffer_bytes_min
        self._buffer = self._readable = _NO_BUFFER
        self._parsed = 0
        self._filled = 0

    @property
    def unfinished_bytes(self) -> int:
        """Bytes received of a frame that is not complete yet; 0 as long as others may be in front of it."""
        return 0 if self.has_more else self._filled - self._parsed

    @property
    def unfinished(self) -> memoryview:
        """The bytes received of a frame that is not complete yet, its header first."""
        return self._readable[self._parsed : self._filled]

    def restart(self, beginning: bytes) -> list[Frame]:
        """Take ``beginning`` in place of what was received of the unfinished frame; returns it if it is complete so.

        For a receiver that took the bulk of the frame itself, and so shortened it: what follows takes little room.
        """
        self._parsed = self._filled = 0
        self._next_size = buffer_bytes_min
        self._set_buffer(self._new_buffer(len(beginning) + 2 * receive_bytes_min))
        self._buffer[: len(beginning)] = beginning
        return self.buffer_updated(len(beginning))

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Free space for the transport to write to; never empty."""
        if self.failure is not None:
            raise self.failure
        if len(self._buffer) - self._filled < self._space_needed():
            self._replace_buffer()
        return self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> list[Frame]:
        """Take note of ``count`` bytes written to the last buffer; returns the frames that are now complete."""
        self._filled += count
        return self.more()

    def more(self) -> list[Frame]:
        """The next of the frames that are complete."""
        frames: list[Frame] = []
        readable, position, filled = self._readable, self._parsed, self._filled
        left = self._frames_max
        self.has_more = False
        while filled - position >= 8:
            if not left:
                self.has_more = True
                break
            left -= 1
            type_code, length = _HEADER.unpack_from(readable, position)
            end = position + 8 + length
            if end > filled or length < 0 or length > self._payload_bytes_max:
                self.begins_tls = type_code >> 16 == _TLS_HANDSHAKE
                if self.begins_tls:
                    self.failure = WireDecodeError("frame", "the peer begins TLS, which this port does not speak")
                elif not 0 <= length <= self._payload_bytes_max:
                    self.failure = WireDecodeError(
                        "frame", f"length {length} of type {type_code} is not in 0..{self._payload_bytes_max}"
                    )
                break
            frames.append((type_code, readable[position + 8 : end]))
            position = end
        self._parsed = position
        if position == len(readable):
            self._drop_buffer()
        return frames

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Copy bytes in; returns the frames that are now complete."""
        source = memoryview(data)
        frames: list[Frame] = []
        while len(source):
            space = self.get_buffer()
            count = min(len(space), len(source))
            space[:count] = source[:count]
            source = source[count:]
            frames += self.buffer_updated(count)
            while self.has_more:
                frames += self.more()
        return frames

    def _space_needed(self) -> int:
        """Free bytes that the next receive should have: the rest of the open frame, at least a minimum."""
        if self._filled - self._parsed < frame_header_bytes:
            return receive_bytes_min
        _, length = _HEADER.unpack_from(self._readable, self._parsed)
        rest: int = frame_header_bytes + length - (self._filled - self._parsed)
        return max(rest, 1)

    def _drop_buffer(self) -> None:
        """Keep nothing of a buffer that is used up; the frames that were handed out keep it while they are held."""
        self._grow()
        self._buffer = self._readable = _NO_BUFFER
        self._parsed = self._filled = 0

    def _grow(self) -> None:
        self._next_size = min(self._next_size * 2, buffer_bytes_max)

    def _replace_buffer(self) -> None:
        unfinished = self._readable[self._parsed : self._filled]
        size = max(self._next_size, len(unfinished) + self._space_needed())
        if len(self._buffer):
            self._grow()
        fresh = self._new_buffer(size)
        fresh[: len(unfinished)] = unfinished
        self._filled = len(unfinished)
        self._parsed = 0
        self._set_buffer(fresh)

    def _set_buffer(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._readable = buffer.toreadonly()
