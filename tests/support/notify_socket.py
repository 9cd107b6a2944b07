"""Takes the notices that services send to systemd."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Final

notice_bytes_max: Final = 4_096
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of a sender, as the kernel says (unix(7))."""


class NotifySocket:
    """A datagram socket at an address, which is a path or begins with a zero byte."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> NotifySocket:
        self._socket.bind(self.address)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def taken(self) -> list[str]:
        """The notices since the last call, the oldest first."""
        return [notice for _, notice in self.senders()]

    def senders(self) -> list[tuple[int, str]]:
        """The same, each with the process that sent it."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, *_ = self._socket.recvmsg(notice_bytes_max, socket.CMSG_SPACE(_CREDENTIALS.size))
                pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2])
                found.append((pid, data.decode()))
        return found
