"""Tells how much a Unix socket takes at once."""

from __future__ import annotations

import socket
from pathlib import Path

from pravega_common.runtime.local_socket import unix_send_buffer_bytes


def is_wide(made: socket.socket) -> bool:
    """Whether its buffer was widened, as far as the kernel grants it."""
    granted_max = int(Path("/proc/sys/net/core/wmem_max").read_text())
    return made.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= min(unix_send_buffer_bytes, granted_max)
