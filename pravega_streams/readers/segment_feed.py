"""Reads one segment ahead of its reader: one chunk in use, and one to come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from pravega_common.errors import (
    DataCorruption,
    PravegaError,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.runtime.clock import Clock
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.endpoints import Endpoint, EndpointResolver
from pravega_streams.connection.owned_answer import answer_of_owner
from pravega_streams.connection.replies import error_of
from pravega_streams.readers.slices import SegmentSlice, end_of_event, header_bytes

read_bytes: Final = 1024 * 1024
"""Bytes of one read. A reader holds two reads a segment, and an event that is larger."""
read_time_max_s: Final = 120.0
"""How long a segment goes unread, over as many stores and connections as it takes, before the reader gets the error."""
retry_delay_min_s: Final = 0.02
retry_delay_max_s: Final = 2.0
end_looked_for_after_s: Final = 1.0
"""A read of a place of which nobody said that the segment has it looks for the segment's end after this time."""
probe_after_s: Final = 10.0
"""A read waits at the tail without a limit. After this time without anything on its connection that is tried, once for
all reads that wait on it."""
probe_time_max_s: Final = 10.0
"""Until the connection is given up also if the store is still the owner."""
reads_on_connection_max: Final = 2_048
"""Reads that wait on one connection; more go over another. Half of what a store takes, which still has those that were
given up, and of the requests that a connection has outstanding, so there is room for a probe."""


class SegmentReads:
    """Reads segments over connections of its own, whose waiting reads end with them.

    As many to a store as its reads need, one for ``reads_on_connection_max`` of them.
    """

    def __init__(self, resolver: EndpointResolver, *, probe_s: float = probe_after_s) -> None:
        self.resolver = resolver
        self._pools = [ConnectionPool()]
        """Each has one connection a store; the later ones are for what finds no room in those before."""
        self._waiting: Counter[WireConnection] = Counter()
        """How many reads wait on each connection, those included that are not sent yet."""
        self._probed: set[WireConnection] = set()
        """The connections that one of their reads tries now, for all of them."""
        self._probe_s = probe_s

    async def read(self, segment: str, offset: int, length: int, *, is_reached: bool = True) -> c.SegmentRead:
        """Wait for bytes at an offset, or for the end of the segment.

        ``is_reached``: whether the segment is known to have all bytes in front of the offset. If not, and it has not,
        the read is ``DataCorruption``: it would wait for what others write, and begin within their events.
        """
        connection = await self._take_place(await self.resolver.resolve(segment))
        try:
            token = await self.resolver.token(segment)
            request = c.ReadSegment(segment, offset, length, token)
            reply = await self._answer(connection, request, is_reached)
        finally:
            self._give_place_back(connection)
        failure = error_of(reply, segment, lambda _: request)
        if failure is not None:
            raise failure
        if not isinstance(reply, c.SegmentRead) or reply.offset != offset:
            raise UnknownOutcome(f"{segment}: the store answered {type(reply).__name__} to a read at offset {offset}")
        return reply

    async def _take_place(self, endpoint: Endpoint) -> WireConnection:
        """The first connection with room for a read, which is counted there from now on."""
        number = 0
        while True:
            if number == len(self._pools):
                self._pools.append(ConnectionPool())
            connection = await self._pools[number].get(endpoint)
            if self._waiting[connection] < reads_on_connection_max:
                self._waiting[connection] += 1
                return connection
            number += 1

    def _give_place_back(self, connection: WireConnection) -> None:
        self._waiting[connection] -= 1
        if not self._waiting[connection]:
            del self._waiting[connection]

    async def _answer(self, connection: WireConnection, request: c.ReadSegment, is_reached: bool) -> c.Command:
        answer = asyncio.ensure_future(connection.call(lambda rid: request.with_fields(request_id=rid)))
        wait_s = self._probe_s if is_reached else end_looked_for_after_s
        try:
            while not (await asyncio.wait({answer}, timeout=wait_s))[0]:
                if not is_reached:
                    is_reached = await self.require_reached(request.segment, request.offset)
                await self._probe(connection, request.segment)
                wait_s = self._probe_s
            return answer.result()
        finally:
            answer.cancel()

    async def _probe(self, connection: WireConnection, segment: str) -> None:
        if connection.silent_s < self._probe_s or connection in self._probed:
            return
        self._probed.add(connection)
        try:
            async with asyncio.timeout(probe_time_max_s):
                await self._info(connection, segment)
        except TimeoutError:
            connection.close(f"no answer within {probe_time_max_s:.0f} s")
        except UnknownOutcome as error:
            connection.close(str(error))
        finally:
            self._probed.discard(connection)

    async def _info(self, connection: WireConnection, segment: str) -> c.Command:
        token = await self.resolver.token(segment)
        answer = asyncio.ensure_future(connection.call(lambda rid: c.GetStreamSegmentInfo(rid, segment, token)))
        return await answer_of_owner(answer, self.resolver, segment, connection.endpoint)

    async def require_reached(self, segment: str, offset: int) -> bool:
        """Whether the segment has all bytes in front of an offset; False where no store says so in time.

        ``DataCorruption`` if it has fewer. A store, as a real one, leaves a read behind the end of an open segment
        waiting, and closes the connection of one behind the end of a sealed segment, with all that wait on it.
        """
        length = await self._length(segment)
        if length is not None and length < offset:
            # Once more by its owner of now: a store that lost the segment may know less of it.
            self.resolver.forget(segment)
            length = await self._length(segment)
        if length is not None and length < offset:
            raise DataCorruption(
                f"{segment}: the reader stands at offset {offset} of a segment of {length} bytes: "
                "another stream has its name, or the cluster lost what was read; reset the reader group"
            )
        return length is not None

    async def _length(self, segment: str) -> int | None:
        """The offset behind the last byte; None where no store says so in time."""
        try:
            async with asyncio.timeout(probe_time_max_s):
                connection = await self._take_place(await self.resolver.resolve(segment))
                try:
                    info = await self._info(connection, segment)
                finally:
                    self._give_place_back(connection)
        except (TimeoutError, PravegaError):
            return None
        return info.write_offset if isinstance(info, c.StreamSegmentInfo) else None

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


class SegmentFeed:
    """The unread bytes of one segment from ``offset`` on, fetched by a task.

    ``end``: the offset at which to stop, None for the segment's own end. ``wake`` is called whenever there may be
    something new: bytes, the end, or a failure.
    """

    def __init__(
        self, segment: str, offset: int, end: int | None, reads: SegmentReads, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self.segment = segment
        self.offset = offset
        """Where the first byte lies that was not read by the user."""
        self._out: SegmentSlice | None = None
        """The slice of it that the user has."""
        self.failure: BaseException | None = None
        """The reason for which nothing more comes, unless it is started again; a ``PravegaError`` but for a fault."""
        self._end = end
        self._reads = reads
        self._clock = clock
        self._wake = wake
        self._buffer = memoryview(b"")
        self._parts: list[memoryview] = []
        self._missing = 0
        self._next: memoryview | None = None
        self._fetched_to = offset
        self._is_reached = False
        """Whether the store that is read from has said that the segment goes up to there."""
        self._has_ended = end is not None and offset >= end
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to fetch, or begin again after a failure, behind what was fetched."""
        self.failure = None
        if self._has_ended:
            self._wake()
            return
        self._wanted.set()
        self._task = asyncio.create_task(self._run(), name=f"read {self.segment}")

    def start_at(self, offset: int) -> None:
        """Begin again at an offset, at most at the end, without what was fetched."""
        self.stop()
        # A group that stood behind its end, where that was truncated, could not begin again at its own cut.
        offset = offset if self._end is None else min(offset, self._end)
        self.offset = self._fetched_to = offset
        self._is_reached = False
        self._buffer, self._parts, self._missing, self._next = memoryview(b""), [], 0, None
        self._has_ended = self._end is not None and offset >= self._end
        self.start()

    def stop(self) -> None:
        """Give up fetching."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def take(self) -> SegmentSlice | None:
        """A slice with one event at least, if there is one; it must come back through ``give_back``."""
        if self.is_out or not self._has_event():
            return None
        self._out = SegmentSlice(self.segment, self.offset, self._buffer)
        return self._out

    def give_back(self, piece: SegmentSlice) -> bool:
        """Go on behind the last event that was taken from the slice. False, and nothing happens, if it is not the one
        that is out: it came back before, or was out when the segment was another reader's."""
        if piece is not self._out:
            return False
        self._out = None
        self._buffer, self.offset = piece.rest(), piece.position
        return True

    @property
    def is_out(self) -> bool:
        """Whether the user has a slice of it."""
        return self._out is not None

    @property
    def is_exhausted(self) -> bool:
        """Whether everything was read that is to be read of this segment."""
        if self.is_out or not self._has_ended or self._has_event():
            return False
        if len(self._buffer) or self._parts:
            raise DataCorruption(f"{self.segment} ends within the event at offset {self.offset}")
        return True

    @property
    def is_stuck(self) -> bool:
        """Whether only the failure is left."""
        return self.failure is not None and not self.is_out and not self._has_event()

    # ---- bytes

    def _has_event(self) -> bool:
        while not self._is_whole():
            if self._next is None:
                return False
            self._parts.append(self._next)
            self._missing -= len(self._next)
            self._next = None
            self._wanted.set()
            if self._missing <= 0:
                self._join()
        return True

    def _is_whole(self) -> bool:
        """Whether the buffer begins with a whole event; else ``_missing`` says how much it takes at least."""
        if self._parts:
            return False
        end = end_of_event(self._buffer, 0, self.segment, self.offset)
        self._missing = (header_bytes if end is None else end) - len(self._buffer)
        return end is not None and self._missing <= 0

    def _join(self) -> None:
        """One copy for each read whose events do not begin with it, whatever the size of the event."""
        if not len(self._buffer) and len(self._parts) == 1:
            self._buffer = self._parts[0]
        else:
            self._buffer = memoryview(b"".join((self._buffer, *self._parts)))
        self._parts = []

    # ---- fetching

    async def _run(self) -> None:
        try:
            while not self._has_ended:
                await self._wanted.wait()
                self._wanted.clear()
                if self._next is None:
                    await self._fetch()
                    self._wake()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # A fault too must reach the one who asks for events: a task that died unseen would look like a quiet tail.
            self.failure = error
            self._wake()

    async def _fetch(self) -> None:
        length = read_bytes if self._end is None else min(read_bytes, self._end - self._fetched_to)
        try:
            reply = await self._read(length)
        except SegmentSealed:
            self._has_ended = True
            return
        data = memoryview(reply.data)[:length]
        self._fetched_to += len(data)
        if len(data):
            self._next = data
        self._has_ended = (reply.end_of_segment and len(data) == len(reply.data)) or self._fetched_to == self._end

    async def _read(self, length: int) -> c.SegmentRead:
        deadline_s = self._clock.monotonic_s() + read_time_max_s
        delay_s = retry_delay_min_s
        has_failed = False
        while True:
            began_s = self._clock.monotonic_s()
            try:
                is_reached = self._is_reached or not self._fetched_to
                reply = await self._reads.read(self.segment, self._fetched_to, length, is_reached=is_reached)
                if len(reply.data) or reply.end_of_segment:
                    self._is_reached = True
                    return reply
                failure: PravegaError = Unavailable(f"{self.segment}: the store answered a read without bytes")
            except (SegmentTruncated, SegmentNotFound):
                raise
            except PravegaError as error:
                if not error.may_be_repeated(idempotent=True):
                    raise
                failure = error
            self._is_reached = False
            if has_failed and isinstance(failure, UnknownOutcome):
                await self._reads.require_reached(self.segment, self._fetched_to)
            has_failed = True
            now_s = self._clock.monotonic_s()
            if now_s - began_s > read_time_max_s / 2:
                # The read had waited at the tail: only what follows counts as time without a store.
                deadline_s = now_s + read_time_max_s
            if now_s + delay_s > deadline_s:
                raise failure
            self._reads.resolver.forget(self.segment)
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)
