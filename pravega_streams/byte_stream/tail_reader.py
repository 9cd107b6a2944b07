"""Reads one segment over a connection of its own; a read that waits at the tail waits on while nobody asks."""

from __future__ import annotations

import time
from typing import Final

from pravega_common.errors import PravegaError, SegmentSealed, SegmentTruncated, UnknownOutcome
from pravega_common.wire import commands as c
from pravega_streams.connection.blocking import WireSocket, reply_time_max_s
from pravega_streams.connection.replies import answered_by, error_of
from pravega_streams.segment.segment_client import SegmentClient

retry_delay_s: Final = 0.05
wait_time_min_s: Final = 0.001
look_after_s: Final = 10.0
"""After so long without an answer the owner of the segment is asked how long it is: a store that froze, or lost the
segment, says nothing, and neither does a connection whose other end is gone."""


class TailReader:
    """Reads from any offset of a segment. Not for several threads.

    An idle reader costs its store a waiting read and a question about the segment each time that it gives up or
    ``look_after_s`` have passed, and a controller nothing.
    """

    def __init__(self, segment: str, segments: SegmentClient) -> None:
        self._segment = segment
        self._segments = segments
        self._socket: WireSocket | None = None
        self._waiting: c.ReadSegment | None = None
        """What was asked and is not answered."""

    def read(self, offset: int, length: int, time_s: float) -> memoryview | None:
        """The bytes at an offset, some of ``length``; none at the end of a sealed segment, None if the segment had no
        more in time.

        Errors: ``SegmentTruncated``, ``NotFound``; ``Unavailable`` and ``UnknownOutcome`` where no store answers.
        """
        try:
            return self._read(offset, length, time_s)
        except PravegaError:
            raise
        except BaseException:  # Ctrl-C: nobody knows what came and was not taken.
            self.close()
            raise

    def _read(self, offset: int, length: int, time_s: float) -> memoryview | None:
        deadline_s = time.monotonic() + time_s
        is_there = False
        while True:
            failure: PravegaError = UnknownOutcome(f"{self._segment}: no store sends the bytes at offset {offset}")
            try:
                wait_s = min(max(wait_time_min_s, deadline_s - time.monotonic()), look_after_s)
                if (data := self._answer(offset, length, wait_s)) is not None:
                    return data
            except SegmentSealed:
                return memoryview(b"")
            except PravegaError as error:
                if not error.may_be_repeated(idempotent=True):
                    raise
                failure = error
                self.close()
                self._segments.endpoints.forget(self._segment)
                if time.monotonic() + retry_delay_s < deadline_s:
                    time.sleep(retry_delay_s)
                    continue
            info = self._segments.info(self._segment)
            is_late = time.monotonic() + retry_delay_s >= deadline_s
            if info.length > offset and not is_there:
                # What takes long is the store, which may fetch them from Tier 2.
                is_there, deadline_s = True, max(deadline_s, time.monotonic() + reply_time_max_s)
            elif info.length > offset:
                self.close()
                if is_late:
                    raise failure
            elif info.is_sealed:
                self.close()
                return memoryview(b"")
            else:
                self._leave_if_moved()
                if is_late:
                    return None

    def close(self) -> None:
        """Give the connection up, and with it what waits at the store."""
        self._waiting = None
        if self._socket is not None:
            self._socket.close()

    def _answer(self, offset: int, length: int, wait_s: float) -> memoryview | None:
        """The bytes that the store sends; None if it sends none in time: it is still asked for them then."""
        socket, waiting = self._asked(offset, length)
        while (reply := socket.receive_within(wait_s)) is not None:
            if answered_by(reply, {waiting.request_id: waiting}) is not None:
                self._waiting = None
                return self._data(reply, waiting)[:length]
        return None

    def _asked(self, offset: int, length: int) -> tuple[WireSocket, c.ReadSegment]:
        """The connection on which the store is asked for these bytes, or for more."""
        socket, waiting = self._socket, self._waiting
        if socket is not None and waiting is not None and socket.is_open:
            if waiting.offset == offset and waiting.suggested_length >= length:
                return socket, waiting
            self.close()
        endpoints = self._segments.endpoints
        if socket is None or not socket.is_open:
            socket = WireSocket(endpoints.resolve(self._segment))
        waiting = c.ReadSegment(self._segment, offset, length, endpoints.token(self._segment), socket.next_request_id())
        socket.send(waiting)
        self._socket, self._waiting = socket, waiting
        return socket, waiting

    def _data(self, reply: c.Command, request: c.ReadSegment) -> memoryview:
        offset = request.offset
        error = error_of(reply, self._segment, lambda _: request)
        if isinstance(error, SegmentTruncated):
            raise SegmentTruncated(self._segment, error.start_offset, offset)
        if error is not None:
            raise error
        if not isinstance(reply, c.SegmentRead) or reply.offset != offset:
            raise UnknownOutcome(f"{self._segment}: the store answered {type(reply).__name__} to a read")
        if not len(reply.data) and not reply.end_of_segment:
            raise UnknownOutcome(f"{self._segment}: the store answered a read without bytes")
        return memoryview(reply.data)

    def _leave_if_moved(self) -> None:
        """Give the connection up if another store has answered for the segment."""
        if self._socket is not None and self._segments.endpoints.resolve(self._segment) != self._socket.endpoint:
            self.close()
