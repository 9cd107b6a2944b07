"""Watches that a peer does in time what it has to: say Hello, complete the frame that it began, be there at all."""

from __future__ import annotations

import socket
from typing import Final, Protocol

from pravega_common.wire.framing import FrameParser, buffer_bytes_min
from segment_service.host.budgets import ServerBudgets

dead_peer_probe_s: Final = 30
"""Silence of a peer after which the kernel probes it, and pause between the probes (nine, as a rule)."""


class Watched(Protocol):
    """A connection that is watched."""

    @property
    def reading_is_paused(self) -> bool: ...

    def close(self, reason: str) -> None: ...

    def cut(self, reason: str) -> None: ...

    def unsent_bytes(self) -> int: ...

    def taken_bytes(self) -> int: ...


class PeerWatch:
    """The watch of one connection. Frames that come in one piece cost it nothing."""

    def __init__(self, budgets: ServerBudgets, parser: FrameParser, connection: Watched) -> None:
        self._budgets = budgets
        self._parser = parser
        self._connection = connection
        self._frames = 0
        self._frames_when_watched = -1
        """-1 while no open frame is watched."""
        self._is_counted = False
        self._block_bytes = 0
        self.has_greeted = False

    def connected(self, stream: socket.socket | None) -> None:
        self._budgets.hello.add(self._hello_overdue)
        if stream is None or stream.family not in (socket.AF_INET, socket.AF_INET6):
            return
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, dead_peer_probe_s)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, dead_peer_probe_s)

    def greeted(self) -> None:
        self.has_greeted = True
        self._budgets.hello.discard(self._hello_overdue)

    def received(self, frames: int) -> None:
        """Note that bytes came, which completed this number of frames."""
        self._frames += frames
        unfinished = self._parser.unfinished_bytes
        if unfinished and self._frames_when_watched < 0:
            self._frames_when_watched = self._frames
            self._budgets.frames.add(self._frame_overdue)
        self._count(unfinished + self._block_bytes)

    def block_is_open(self, size: int) -> None:
        """Note the bytes of the append block that waits for its end, 0 if none does: they are held as those of an open
        frame are."""
        self._block_bytes = size
        self._count(self._parser.unfinished_bytes + size)

    def _count(self, size: int) -> None:
        """Count a large frame that is open, or count it no more; a small one costs nothing."""
        is_large = size > buffer_bytes_min
        if is_large or self._is_counted:
            self._is_counted = is_large
            self._budgets.open_frames.note(self._connection, size if is_large else 0)

    def lost(self) -> None:
        self._budgets.hello.discard(self._hello_overdue)
        self._budgets.frames.discard(self._frame_overdue)
        self._budgets.open_frames.note(self._connection, 0)

    def _hello_overdue(self) -> None:
        self._connection.close(f"no Hello within {self._budgets.hello.after_s:.0f} s")

    def _frame_overdue(self) -> None:
        """Close if the frame that was open when the time began still is. While the server itself does not read, the
        time does not count."""
        was, self._frames_when_watched = self._frames_when_watched, -1
        if was == self._frames and self._parser.unfinished_bytes and not self._connection.reading_is_paused:
            self._connection.close(f"a frame was not complete within {self._budgets.frames.after_s:.0f} s")
        else:
            self.received(0)
