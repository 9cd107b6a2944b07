"""Speaks TLS over a blocking socket that one thread may send on while another one receives."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from pravega_common.runtime.client_tls import ClientTls

record_bytes: Final = 16 * 1024
"""The most that one TLS record holds, and one call of OpenSSL sends: smaller buffers are put together up to this."""


class TlsSocket:
    """The calls of ``socket.socket`` that ``WireSocket`` uses, over TLS.

    OpenSSL allows one call at a time on a connection, and ``ssl.SSLSocket`` waits inside of its calls. So the socket
    does not block: a lock is held during each call, and never while waiting for the peer.
    """

    def __init__(self, plain: socket.socket, host: str, tls: ClientTls) -> None:
        """``plain``: connected; it is closed if the handshake fails within its timeout: ``OSError``."""
        self._timeout_s = plain.gettimeout()
        try:
            self._stream = tls.context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
        self._stream.setblocking(False)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._stream.fileno()

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Send the beginning of the buffers: at most a record; returns the number of bytes."""
        first = buffers[0]
        data: bytes | memoryview = first[:record_bytes]
        if len(first) < record_bytes and len(buffers) > 1:
            data = _joined(buffers)
        # A call that OpenSSL asks to repeat is repeated with the same bytes.
        return self._patiently(lambda: self._stream.send(data))

    def recv_into(self, buffer: memoryview) -> int:
        """Returns 0 at the end of the connection."""
        return self._patiently(lambda: self._stream.recv_into(buffer))

    def shutdown(self, how: int) -> None:
        """That of the connection below TLS: what another thread waits for on it comes to an end."""
        socket.socket.shutdown(self._stream, how)  # SSLSocket's own would have it read what is left without TLS.

    def close(self) -> None:
        self._stream.close()

    def _patiently(self, call: Callable[[], int]) -> int:
        deadline_s: float | None = None
        while True:
            try:
                with self._lock:
                    return call()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            if deadline_s is None and self._timeout_s is not None:
                deadline_s = time.monotonic() + self._timeout_s
            self._wait(event, deadline_s)

    def _wait(self, event: int, deadline_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._stream, event)
        left_ms = None if deadline_s is None else max(0.0, deadline_s - time.monotonic()) * 1_000
        if not poll.poll(left_ms):
            raise TimeoutError("timed out")


def _joined(buffers: Sequence[memoryview]) -> bytes:
    taken: list[memoryview] = []
    size = 0
    for buffer in buffers:
        taken.append(buffer[: record_bytes - size])
        size += len(taken[-1])
        if size == record_bytes:
            break
    return b"".join(taken)
