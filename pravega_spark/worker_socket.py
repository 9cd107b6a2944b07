"""Acknowledges what Spark's JVM sends to the Python worker of a task at once.

The JVM sends a task in small writes: first the pickled reader or writer, then what it works on. Its socket holds the
second one back until the first is acknowledged (Nagle's algorithm, RFC 896), and the worker's kernel delays that by
40 ms (RFC 1122, 4.2.3.2), since the worker has nothing to answer yet. Without this every task waits that long.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import Any, Final

_OWN_DESCRIPTORS: Final = "/proc/self/fd"


class SentToTask:
    """A reader or writer that Spark pickles for its tasks.

    A worker unpickles it when it has all of the JVM's first write and before it waits for the second one.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Send the acknowledgements that wait on the TCP sockets of this process; does nothing where there is no Linux.

    Nothing tells which socket is the JVM's. Those of stores and controllers may acknowledge early, too: the kernel goes
    back to delays by itself, as the option lasts for a few segments (tcp(7), ``TCP_QUICKACK``).
    """
    if sys.platform != "linux":
        return
    for name in os.listdir(_OWN_DESCRIPTORS):
        _acknowledge(int(name))


def _acknowledge(descriptor: int) -> None:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return
        borrowed = socket.socket(fileno=descriptor)
    except OSError:  # Closed since it was listed, as the descriptor of the list itself is.
        return
    try:
        if borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM:
            borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:  # A socket that is being closed: nothing waits for it.
        pass
    finally:
        borrowed.detach()
