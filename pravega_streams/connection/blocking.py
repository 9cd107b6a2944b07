"""Connects to a segment store without an event loop, for Spark's Python workers and scripts."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pravega_common.errors import PravegaError, RejectedError, Unavailable, UnknownOutcome
from pravega_common.invariants import check
from pravega_common.runtime.client_tls import explained, tls_problem
from pravega_common.runtime.local_socket import connect_locally
from pravega_common.wire import commands as c
from pravega_common.wire.codec import ReadHead, decode, encode_parts, read_head
from pravega_common.wire.errors import WireDecodeError
from pravega_common.wire.framing import Frame, FrameParser, small_buffer
from pravega_common.wire.versions import EXTENSIONS, OLDEST_COMPATIBLE_VERSION, WIRE_VERSION, is_compatible
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.own_process import OwnProcess
from pravega_streams.connection.replies import answered_by
from pravega_streams.connection.requests import MakeCommand, connect_time_max_s, first_request_id
from pravega_streams.connection.silence import silence_min_s, silences_s
from pravega_streams.connection.tls_socket import TlsSocket

HasMoved = Callable[[], bool]
"""Asked after a silence: whether to give the connection up, as another store has what is waited for."""

Place = Callable[[ReadHead], memoryview | None]
"""Returns where the data of the SegmentRead go that is coming, as long as they are; ``None``: to a buffer of theirs."""

reply_time_max_s: Final = 30.0
"""How long ``receive`` waits by default; a tail read must bring its own limit."""
rounding_s: Final = 1e-3
"""A sum of pauses may lack this."""
iovec_buffers_max: Final = 512
"""Buffers of one ``sendmsg`` (the system's IOV_MAX is 1024)."""
_TYPE: Final = struct.Struct(">i")
"""The first field of a frame."""


class WireSocket:
    """One blocking socket. Not for several threads, except that one may send while another one receives.

    Errors: ``Unavailable`` if it cannot connect; ``UnknownOutcome`` once a connection in use is lost, a reply does
    not come in time, or none comes and ``has_moved`` (the socket is closed then: what was sent may have been done).
    It is closed, too, when a call on it is interrupted (Ctrl-C): a part of a frame may have left, or come and be lost.
    A process that was forked does not have it open: each would take answers to the other.
    """

    def __init__(self, endpoint: Endpoint, *, reply_time_s: float = reply_time_max_s) -> None:
        self.endpoint = endpoint
        self._parser = FrameParser(new_buffer=small_buffer)
        self._frames: deque[Frame] = deque()
        self._request_ids = itertools.count(first_request_id)
        self._peer_version: int | None = None
        self._peer_extensions = 0
        self._process = OwnProcess()
        try:
            self._socket = _connect(endpoint)
        except OSError as error:
            refusal = explained(error, f"the segment store at {endpoint}")
            if refusal is not None:
                raise refusal from error
            raise Unavailable(f"no connection to the segment store at {endpoint}: {error}") from error
        self.set_reply_time(reply_time_s)
        self.send(c.Hello(WIRE_VERSION, OLDEST_COMPATIBLE_VERSION, EXTENSIONS))

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0 and self._process.is_current

    def fileno(self) -> int:
        """The descriptor, to wait for what comes; what was received before is not seen by it."""
        return self._socket.fileno()

    def next_request_id(self) -> int:
        return next(self._request_ids)

    def send(self, *commands: c.Command) -> None:
        self.send_parts([part for command in commands for part in encode_parts(command)])

    def send_parts(self, parts: list[bytes | memoryview], has_moved: HasMoved = bool) -> None:
        """Send encoded frames; the buffers are not copied or joined."""
        try:
            for start in range(0, len(parts), iovec_buffers_max):
                self._send_all(parts[start : start + iovec_buffers_max], has_moved)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            self.close()
            raise

    def _send_all(self, parts: list[bytes | memoryview], has_moved: HasMoved) -> None:
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        while views:
            sent = self._patiently(lambda: self._socket.sendmsg(views), has_moved)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views and sent:
                views[0] = views[0][sent:]

    def receive(self, has_moved: HasMoved = bool, place: Place | None = None) -> c.Command:
        """The next command of the store; its bulk fields are views that stay valid. Hello is handled here.

        The data of a SegmentRead are what ``place`` gave, if it did. It has them once ``receive`` returns this reply.
        """
        while True:
            reply = self._next(has_moved, place)
            if not isinstance(reply, c.Hello):
                return reply
            self._greeted(reply)

    def receive_within(self, wait_s: float) -> c.Command | None:
        """The next command of the store; None if nothing comes for as long, and the next call goes on from there."""
        self.set_reply_time(wait_s)
        try:
            while True:
                while not self._frames:
                    self._take(self._receive_in_time(self._space(), bool))
                reply = self._next_reply(bool, None)
                if not isinstance(reply, c.Hello):
                    return reply
                self._greeted(reply)
        except TimeoutError:
            return None
        except BaseException:
            self.close()
            raise

    def peer_version(self, has_moved: HasMoved = bool) -> int:
        """The newest version of the protocol that the store speaks; waits for its Hello, the first that it sends."""
        if self._peer_version is None:
            reply = self._next(has_moved)
            if not isinstance(reply, c.Hello):
                raise self._lost(ValueError(f"{type(reply).__name__} before Hello"))
            return self._greeted(reply)
        return self._peer_version

    def knows(self, extension: int, has_moved: HasMoved = bool) -> bool:
        """Whether the store knows an extension of the protocol (``wire/versions.py``); waits for its Hello."""
        self.peer_version(has_moved)
        return bool(self._peer_extensions & extension)

    def _next(self, has_moved: HasMoved, place: Place | None = None) -> c.Command:
        try:
            return self._next_reply(has_moved, place)
        except BaseException:
            self.close()
            raise

    def _next_reply(self, has_moved: HasMoved, place: Place | None) -> c.Command:
        placed = None
        while not self._frames:
            if place is not None and placed is None:
                placed = self._receive_in_place(place, has_moved)
            if not self._frames:
                self._fill(has_moved)
        type_code, payload = self._frames.popleft()
        try:
            reply = decode(type_code, payload)
        except WireDecodeError as error:
            raise self._lost(error) from error
        if placed is not None:
            check(isinstance(reply, c.SegmentRead), "only the data of a read are received in place", reply=type(reply))
            return reply.with_fields(data=placed)
        if isinstance(reply, c.ErrorMessage) and not (reply.request_id or reply.segment):
            raise self._lost(ConnectionRefusedError(reply.message))
        return reply

    def _greeted(self, hello: c.Hello) -> int:
        if not is_compatible(hello.high_version, hello.low_version):
            raise self._lost(ValueError(f"wire versions {hello.low_version}..{hello.high_version} are not ours"))
        self._peer_version = hello.high_version
        self._peer_extensions = hello.extensions
        return hello.high_version

    def call(self, make: MakeCommand, has_moved: HasMoved = bool) -> c.Command:
        """Send one command and wait for the reply with its request id; others meanwhile are dropped."""
        request_id = self.next_request_id()
        request = make(request_id)
        self.send(request)
        while True:
            reply = self.receive(has_moved)
            if answered_by(reply, {request_id: request}) is not None:
                return reply

    def set_reply_time(self, reply_time_s: float) -> None:
        self._reply_time_s = reply_time_s
        self._socket.settimeout(reply_time_s / math.ceil(reply_time_s / silence_min_s))

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """End the connection under another thread, whose call on it fails and closes it.

        A process that was forked since has a descriptor of a connection that is not its own, and leaves that alone.
        """
        if not self._process.is_current:
            return
        with contextlib.suppress(OSError):  # It may be closed by now.
            self._socket.shutdown(socket.SHUT_RDWR)

    def _patiently(self, step: Callable[[], int], has_moved: HasMoved) -> int:
        """Do it, in the time of a reply; ``has_moved`` is asked as ``silences_s`` says."""
        waited_s = next_s = 0.0
        pauses_s: Iterator[float] | None = None  # Hardly a step needs them.
        while True:
            try:
                return step()
            except TimeoutError:
                waited_s += self._socket.gettimeout() or 0.0
                if waited_s >= self._reply_time_s - rounding_s:
                    raise
                if pauses_s is None:
                    pauses_s = silences_s()
                    next_s = next(pauses_s)
                if waited_s < next_s - rounding_s:
                    continue
                if has_moved():
                    raise TimeoutError(f"no answer for {waited_s:.0f} s, and another store has the segment") from None
                next_s = waited_s + next(pauses_s)

    def _fill(self, has_moved: HasMoved) -> None:
        self._take(self._receive_some(self._space(), has_moved))

    def _space(self) -> memoryview:
        """Room in the parser for what comes."""
        try:
            return self._parser.get_buffer()
        except WireDecodeError as error:
            raise self._lost(error) from error

    def _take(self, count: int) -> None:
        self._frames.extend(self._parser.buffer_updated(count))

    def _receive_in_place(self, place: Place, has_moved: HasMoved) -> memoryview | None:
        """Receive all data of the frame that is coming where they go; it is then complete without them, or soon."""
        frame = self._parser.unfinished
        head = read_head(frame)
        target = None if head is None else place(head)
        if head is None or target is None:
            return None
        check(len(target) == head.data_bytes, "a read has another length than its place", head=head, place=len(target))
        data = frame[head.data_start : head.data_start + head.data_bytes]
        count = len(data)
        target[:count] = data
        while count < len(target):
            count += self._receive_some(target[count:], has_moved)
        self._frames.extend(self._parser.restart(head.without_data(frame)))
        return target

    def _receive_some(self, target: memoryview, has_moved: HasMoved) -> int:
        try:
            return self._receive_in_time(target, has_moved)
        except TimeoutError as error:
            raise self._lost(error) from error

    def _receive_in_time(self, target: memoryview, has_moved: HasMoved) -> int:
        """``TimeoutError``, and the connection stays, if nothing comes in the time of a reply."""
        try:
            count = self._patiently(lambda: self._socket.recv_into(target), has_moved)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._lost(error) from error
        if count == 0:
            raise self._lost(ConnectionResetError("the store closed the connection"))
        return count

    def _lost(self, error: Exception) -> PravegaError:
        try:
            is_greeted = isinstance(error, TimeoutError) or self._is_greeted()
        finally:
            self.close()
        refusal = None if is_greeted else self._refusal()
        return refusal or UnknownOutcome(f"segment store {self.endpoint}: {error}")

    def _is_greeted(self) -> bool:
        """Whether a Hello came, also one that nobody has read: a writer sends much before it reads."""
        if self._peer_version is not None or self._frames or isinstance(self._socket, TlsSocket):
            return True
        with contextlib.suppress(OSError):
            self._socket.settimeout(0)  # It is closed next.
            return self._socket.recv(_TYPE.size, socket.MSG_PEEK) == _TYPE.pack(c.Hello.type_code)
        return False

    def _refusal(self) -> RejectedError | None:
        """Why a store that hangs up without a Hello does: it speaks TLS, and this connection does not."""
        return tls_problem(self.endpoint.host, self.endpoint.port, None, f"the segment store at {self.endpoint}")


def _connect(endpoint: Endpoint) -> socket.socket | TlsSocket:
    local = None if endpoint.tls is not None else connect_locally(endpoint.host, endpoint.port)
    if local is not None:
        return local
    made = socket.create_connection((endpoint.host, endpoint.port), timeout=connect_time_max_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made if endpoint.tls is None else TlsSocket(made, endpoint.host, endpoint.tls)
