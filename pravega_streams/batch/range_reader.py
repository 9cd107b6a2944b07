"""Reads the bytes between two offsets of a segment, for code without an event loop (docs/wire-protocol.md 4)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import (
    InvalidArgument,
    PravegaError,
    SegmentSealed,
    SegmentTruncated,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.wire import commands as c
from pravega_common.wire.codec import ReadHead
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint
from pravega_streams.connection.idle_ends import IdleEnds
from pravega_streams.connection.replies import answered_by, error_of
from pravega_streams.connection.requests import retry_delay_max_s, retry_delay_min_s
from pravega_streams.connection.silence import has_moved

request_bytes_max: Final = 2 * 1024 * 1024
"""What one request asks for: no store sends more at once (4)."""
request_bytes_min: Final = 64 * 1024
requests_ahead_max: Final = 3
read_time_max_s: Final = 120.0
"""How long a reader goes without a byte, over as many stores and connections as it takes, before it gives up."""
idle_sockets_max: Final = 8
_NOTHING: Final = memoryview(b"")


class ReadSockets:
    """The idle connections of one thread by store, which the next range reuses. Never forked.

    One that no range uses for ``idle_time_max_s`` is closed with the next use of others.
    """

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._idle: dict[Endpoint, list[WireSocket]] = {}
        self._ends = IdleEnds[WireSocket](monotonic_s)

    def take(self, endpoint: Endpoint) -> WireSocket:
        taken = self._pop(endpoint)
        while taken is not None and not taken.is_open:
            taken = self._pop(endpoint)
        self._end_idle()
        return WireSocket(endpoint) if taken is None else taken

    def give_back(self, endpoint: Endpoint, socket: WireSocket) -> None:
        """Only a connection without unanswered requests."""
        self._end_idle()
        if socket.is_open and len(self._idle.get(endpoint, ())) < idle_sockets_max:
            self._ends.used(socket)
            self._idle.setdefault(endpoint, []).append(socket)
        else:
            socket.close()

    def _pop(self, endpoint: Endpoint) -> WireSocket | None:
        """The connection to a store that was used last."""
        idle = self._idle.get(endpoint)
        if not idle:
            return None
        socket = idle.pop()
        self._ends.remove(socket)
        if not idle:
            del self._idle[endpoint]
        return socket

    def _end_idle(self) -> None:
        for socket in self._ends.ended():
            socket.close()
            idle = self._idle.get(socket.endpoint, [])
            if socket in idle:  # An interrupt (Ctrl-C) may have come while it was taken.
                idle.remove(socket)
            if not idle:
                self._idle.pop(socket.endpoint, None)

    def close(self) -> None:
        for sockets in self._idle.values():
            for socket in sockets:
                socket.close()
                self._ends.remove(socket)
        self._idle.clear()


@dataclass(slots=True)
class _Request:
    offset: int
    length: int
    command: c.ReadSegment

    @property
    def request_id(self) -> int:
        return self.command.request_id


class RangeReader:
    """The bytes of ``segment`` from ``start`` (included) to ``end`` (excluded), which must have been written.

    Errors of ``read_into``: ``SegmentTruncated`` (the start, or a later part, is gone), ``SegmentNotFound``,
    ``InvalidArgument`` when the segment is sealed before ``end``, ``Unavailable`` when no store answers in time.
    """

    def __init__(
        self,
        segment: str,
        start: int,
        end: int,
        resolver: BlockingResolver,
        sockets: ReadSockets,
        *,
        read_time_s: float = read_time_max_s,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 <= start <= end:
            raise InvalidArgument(f"{segment}: range {start} to {end} must not be negative")
        self.segment = segment
        self.position = start
        self.end = end
        self._resolver = resolver
        self._sockets = sockets
        self._read_time_s = read_time_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._endpoint: Endpoint | None = None
        self._socket: WireSocket | None = None
        self._requests: deque[_Request] = deque()
        self._asked_up_to = start
        self._request_bytes = request_bytes_max
        self._room = self._rest = _NOTHING
        self._replies: dict[int, c.Command] = {}

    def read_into(self, target: memoryview) -> int:
        """Write what follows to ``target``; returns the bytes written, 0 only at the end of the range or without room.

        A reply that fits is received where it goes, without a copy. So this ends in front of one that would not fit
        behind others; a target with room for the rest of the range is always filled with it.
        """
        try:
            filled = self._read_into(target)
        except PravegaError:
            raise
        except BaseException:  # Ctrl-C: nobody knows what is on its way, and what of it was taken.
            self._give_up()
            raise
        if self.position == self.end:
            self.close()
        return filled

    def _read_into(self, target: memoryview) -> int:
        filled = 0
        while filled < len(target) and self.position < self.end:
            room = target[filled:]
            if filled and not len(self._rest) and self._expected_bytes() > len(room):
                break
            data = self._rest if len(self._rest) else self._next_reply(room)
            count = min(len(data), len(room))
            if data.obj is not room.obj:
                room[:count] = data[:count]
            self._rest = data[count:]
            self.position += count
            filled += count
        return filled

    def close(self) -> None:
        """Give the connection up; it is kept for others when nothing is owed on it."""
        if self._socket is None or self._endpoint is None:
            return
        if self._requests:
            self._socket.close()
        else:
            self._sockets.give_back(self._endpoint, self._socket)
        self._drop()

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._drop()

    def _drop(self) -> None:
        self._socket = None
        self._rest = _NOTHING
        self._requests.clear()
        self._replies.clear()
        self._asked_up_to = self.position

    def _expected_bytes(self) -> int:
        """The bytes that the next reply has if the store sends all that is asked for."""
        return self._requests[0].length if self._requests else min(self._request_bytes, self.end - self.position)

    def _next_reply(self, room: memoryview) -> memoryview:
        """The data at ``position``: the beginning of ``room`` if they fit, else a view of their own."""
        self._room = room
        deadline_s = self._monotonic_s() + self._read_time_s
        delay_s = retry_delay_min_s
        while True:
            try:
                data = self._ask()
                if len(data):
                    return data
                failure: Exception = Unavailable("the store answered without data")
            except PravegaError as error:
                if not error.may_be_repeated(idempotent=True):
                    raise
                failure = error
                self._resolver.forget(self.segment)
            self._give_up()
            if self._monotonic_s() + delay_s > deadline_s:
                raise Unavailable(
                    f"{self.segment}: nothing could be read at offset {self.position} for {self._read_time_s:.0f} s: "
                    f"{failure}"
                ) from failure
            self._sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)

    def _ask(self) -> memoryview:
        """The data at ``position``, from the reply to the oldest request; further requests are sent first."""
        if self._socket is None:
            self._endpoint = self._resolver.resolve(self.segment)
            self._socket = self._sockets.take(self._endpoint)
            self._asked_up_to = self.position
        self._send_ahead(self._socket)
        request = self._requests[0]
        reply = self._reply_to(request, self._socket)
        self._requests.popleft()
        if not isinstance(reply, c.SegmentRead):
            return self._refused(reply, request.command)
        if not reply.offset == request.offset == self.position:
            raise UnknownOutcome(f"{self.segment}: asked for offset {request.offset}, got {reply.offset}")
        if reply.end_of_segment and reply.offset + len(reply.data) < self.end:
            raise self._ends_early(reply.offset + len(reply.data))
        data = memoryview(reply.data)[: request.length]
        if 0 < len(data) < request.length:
            self._ask_for_rest(request, len(data), self._socket)
        return data

    def _send_ahead(self, socket: WireSocket) -> None:
        while len(self._requests) < requests_ahead_max and self._asked_up_to < self.end:
            length = min(self._request_bytes, self.end - self._asked_up_to)
            self._requests.append(self._send(socket, self._asked_up_to, length))
            self._asked_up_to += length

    def _send(self, socket: WireSocket, offset: int, length: int) -> _Request:
        token = self._resolver.token(self.segment)
        command = c.ReadSegment(self.segment, offset, length, token, socket.next_request_id())
        socket.send(command)
        return _Request(offset, length, command)

    def _ask_for_rest(self, request: _Request, received: int, socket: WireSocket) -> None:
        """A store may send less than was asked for. Ask for the gap, and for no more than that in future."""
        self._request_bytes = max(request_bytes_min, min(self._request_bytes, received))
        self._requests.appendleft(self._send(socket, request.offset + received, request.length - received))

    def _reply_to(self, request: _Request, socket: WireSocket) -> c.Command:
        """Replies to later requests may come first and are kept."""
        while request.request_id not in self._replies:
            reply = socket.receive(lambda: has_moved(self._resolver, self.segment, socket.endpoint), self._place)
            answered = answered_by(reply, {one.request_id: one.command for one in self._requests})
            if answered is not None:
                self._replies[answered] = reply
        return self._replies.pop(request.request_id)

    def _place(self, head: ReadHead) -> memoryview | None:
        """The room for a reply that is on its way, if it is the next and fits."""
        oldest = self._requests[0]
        is_next = head.segment == self.segment and head.offset == oldest.offset == self.position
        return (
            self._room[: head.data_bytes]
            if is_next and head.data_bytes <= min(oldest.length, len(self._room))
            else None
        )

    def _refused(self, reply: c.Command, request: c.ReadSegment) -> memoryview:
        error = error_of(reply, self.segment, lambda _: request)
        if isinstance(error, SegmentSealed):
            error = self._ends_early(self.position)
        if isinstance(error, SegmentTruncated):
            error = SegmentTruncated(self.segment, error.start_offset, self.position)
        raise error or UnknownOutcome(f"{self.segment}: the store answered {type(reply).__name__} to a read")

    def _ends_early(self, offset: int) -> InvalidArgument:
        return InvalidArgument(
            f"{self.segment} is sealed at offset {offset}, but the range to read goes on to offset {self.end}"
        )
