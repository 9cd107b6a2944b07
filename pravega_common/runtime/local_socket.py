"""Names and opens the Unix socket that a segment store has beside its port, and widens Unix sockets."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Container
from typing import Final

local_connect_time_max_s: Final = 1.0
unix_send_buffer_bytes: Final = 4 * 1024 * 1024
"""Asked of the kernel for a Unix socket: room for a few frames. It grants at most ``net.core.wmem_max``."""
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_LISTENING: Final = (*_LOOPBACK, "0.0.0.0")
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user and group."""


def listening_name(host: str, port: int) -> str:
    """Return the address of the Unix socket of a store that listens at ``host:port``; empty if it is to have none.

    A name of Linux' abstract namespace: it ends with its socket, and is of the network namespace, as a loopback
    address is.
    """
    return _name(port) if host in _LISTENING else ""


def connect_locally(host: str, port: int, trusted: Container[int] | None = None) -> socket.socket | None:
    """Connect to the Unix socket of the store at ``host:port``, if that is a loopback address and the socket is there.

    Any user of the machine may take a name. So ``None`` also if the other end is of no user in ``trusted``: by default
    this user and root.
    """
    name = _name(port) if host in _LOOPBACK else ""
    if not name:
        return None
    made = socket.socket(socket.AF_UNIX)
    try:
        widen(made)
        made.settimeout(local_connect_time_max_s)
        made.connect(name)
        if _user_of(made) in ((0, os.geteuid()) if trusted is None else trusted):
            return made
    except OSError:
        pass  # Not there, or not accepting: the port tells.
    made.close()
    return None


def widen(unix_socket: socket.socket) -> None:
    """Let a frame go to the kernel in one piece. Unlike TCP's, the buffer of a Unix socket does not grow by itself:
    with the usual 208 KiB a frame of 1 MiB takes several turns of both ends, and up to five times the CPU."""
    unix_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unix_send_buffer_bytes)


def _name(port: int) -> str:
    return f"\0pravega-segment-store/{port}" if sys.platform == "linux" else ""


def _user_of(peer: socket.socket) -> int:
    """The user of the process that listens at the other end."""
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)
