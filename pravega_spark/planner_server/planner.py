"""Makes a process that a server has forked into the planner that a client asks for."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pravega_spark.planner_server.client import BEGIN, HELLO, PER_PROCESS, PROTOCOL, READY, wait_max_s

request_max_bytes: Final = 8 << 20
"""A request has an environment, which the kernel limits to a quarter of the stack's limit: 2 MiB as a rule."""
_NOT_STARTED: Final = 70
"""Exit code of a process that never became a planner; nobody but the server sees it."""
STREAMS: Final = 3


class RefusedError(Exception):
    """Says that a request is not for a planner of this server."""


def become_planner(
    connection: socket.socket,
    environment: Mapping[bytes, bytes],
    arguments: Sequence[str],
    set_up: Callable[[], None],
) -> None:
    """Take the request's environment and streams over, and wait for the client's word to begin.

    ``environment`` and ``arguments`` are those of the server; the request's are the same but for the variables of
    ``PER_PROCESS``. ``set_up`` is called behind all imports of this function. The process ends here, without output, if
    anything is not as expected: the client starts another.
    """
    try:
        connection.settimeout(wait_max_s(environment))
        connection.sendall(HELLO)
        given, streams = received(connection)
        _take_over(parsed(given, arguments), environment, streams)
        set_up()
        # The client passes signals on by it: a process id might be another process's by then.
        process = os.pidfd_open(os.getpid())
        rights = process.to_bytes(4, sys.byteorder)
        connection.sendmsg([READY], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(process)
        if connection.recv(1) != BEGIN:
            raise RefusedError
        connection.settimeout(None)
        end_with_peer(connection)
        connection.detach()  # Open as long as this process: when the server has gone, nothing else holds it.
    except BaseException:  # Nothing of the server's process may go on in this one.
        os._exit(_NOT_STARTED)


def received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A request's bytes and descriptors."""
    data, streams, _, _ = socket.recv_fds(connection, 1 << 16, STREAMS, socket.MSG_CMSG_CLOEXEC)
    length = int.from_bytes(data[:4], "big")
    if not 0 < length <= request_max_bytes or len(streams) != STREAMS:
        raise RefusedError
    parts, missing = [data[4:]], length - len(data) + 4
    while missing > 0:
        part = connection.recv(min(missing, 1 << 16))
        if not part:
            raise RefusedError
        parts.append(part)
        missing -= len(part)
    return b"".join(parts), streams


def parsed(request: bytes, arguments: Sequence[str]) -> dict[bytes, bytes]:
    """The variables of a request; raises ``RefusedError`` for another version or other arguments."""
    version, count, *rest = request.split(b"\0")
    if version != PROTOCOL or rest[: int(count)] != list(map(os.fsencode, arguments)):
        raise RefusedError
    entries = [entry.partition(b"=") for entry in rest[int(count) :]]
    return {name: value for name, _, value in entries}


def _take_over(given: Mapping[bytes, bytes], environment: Mapping[bytes, bytes], streams: Sequence[int]) -> None:
    """Give this process the request's streams, and its own variables beside those that it shares with the server."""
    if {name: value for name, value in given.items() if name not in PER_PROCESS} != environment:
        raise RefusedError
    for name in PER_PROCESS:
        os.environb.pop(name, None)
    os.environb.update({name: value for name, value in given.items() if name in PER_PROCESS})
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.flush()
    sys.stderr.flush()


def end_with_peer(connection: socket.socket) -> None:
    """Have the kernel kill this process when the client has gone, however it went, and also when the server has.

    A socket that is to signal its events sends SIGKILL here (fcntl(2), ``F_SETSIG``). A client sends nothing after its
    word to begin, so its end is the only event.
    """
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    looked = select.poll()
    looked.register(connection, select.POLLRDHUP)
    if looked.poll(0):
        raise RefusedError
