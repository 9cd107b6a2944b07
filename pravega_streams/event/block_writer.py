"""Appends whole blocks of framed events, for code without an event loop (docs/wire-protocol.md 3).

One socket per store carries the blocks of many segments. Every block travels inside one ``AppendBlockEnd``; several
are in flight. Nothing here knows what an event is: callers give pieces that end between two events, and count them.
"""

from __future__ import annotations

import logging
import math
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pravega_common.errors import (
    BadEventNumber,
    ContainerNotHosted,
    PravegaError,
    SegmentNotFound,
    SegmentSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.invariants import check
from pravega_common.wire import commands as c
from pravega_streams.connection.blocking import HasMoved, WireSocket
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint
from pravega_streams.connection.idle_ends import IdleEnds
from pravega_streams.connection.own_process import OwnProcess
from pravega_streams.connection.replies import error_of
from pravega_streams.connection.requests import retry_delay_max_s, retry_delay_min_s
from pravega_streams.connection.silence import has_moved
from pravega_streams.event.write_budget import WriteBudget, block_bytes_max, held_bytes_max

set_ups_in_flight_max: Final = 256
"""Writers of one socket that may be setting up: some 25 KB each way, so neither side waits for the other to read."""
set_ups_left_max: Final = 1_000
"""Writers that were set up on one socket before a new one takes its place, once none of them is in use: a store keeps
each, some 1 to 3 KiB, for as long as the connection lasts, and has a limit for those of a host."""
blocks_in_flight_max: Final = 8
"""Blocks of one writer that may be unanswered."""
attach_time_max_s: Final = 120.0
"""How long a writer tries to find the owner of its segment and to set up again before it gives up."""
reply_time_max_s: Final = 180.0
"""A store that holds appends back (its Tier 2 is behind) is waited for this long before its connection is given up,
as long as it is the owner (``connection/silence.py``)."""
acknowledge_time_max_s: Final = 3_600.0
"""How long a call waits while stores set writers up and acknowledge nothing. They hold appends back for as long as Tier
2 is away, which passes without an error up to this; a store that will never answer ends a job after it."""
notice_time_min_s: Final = 10.0
"""After so long without an acknowledgement a warning says that the store is waited for."""
notice_every_s: Final = 60.0
"""At most one of these warnings in this time, of all writers that share sockets."""
number_conflicts_max: Final = 5
"""Refused event numbers in a row without progress. One is normal: blocks of a lost connection arrived after all."""

_log = logging.getLogger(__name__)
_BLOCK_END_HEAD = struct.Struct(">ii16sii")
_BLOCK_END_TAIL = struct.Struct(">iqq")
_block_end_fixed_bytes: Final = 16 + 4 + 4 + 4 + 8 + 8


@dataclass(slots=True)
class Piece:
    """Whole framed events as ``write`` got them; ``tag`` is the caller's."""

    data: memoryview
    event_count: int
    tag: Any = None


@dataclass(slots=True)
class _Block:
    pieces: list[Piece]
    event_count: int
    last_event_number: int

    @property
    def size_bytes(self) -> int:
        return sum(len(piece.data) for piece in self.pieces)


@dataclass(slots=True)
class _Channel:
    """One socket, and who may find its answers on it."""

    socket: WireSocket
    writers: dict[bytes, BlockWriter] = field(default_factory=dict)
    requests: dict[int, tuple[BlockWriter, int]] = field(default_factory=dict)
    """Who sent each request, and the number of its attachment."""
    set_ups: set[int] = field(default_factory=set)
    """Requests to set a writer up that are not answered."""
    set_up_count: int = 0
    """Requests to set a writer up that were ever sent."""

    @property
    def is_worn(self) -> bool:
        """Whether only the store still keeps something of the writers on it, and of many."""
        return not self.writers and self.set_up_count >= set_ups_left_max


class BlockWriter:
    """Writes to one segment, or to one transaction segment. Made by ``BlockWriters.open``.

    Errors of ``write`` and ``flush``: ``SegmentSealed`` and ``SegmentNotFound`` (then ``unacknowledged`` has what
    was not written), ``BadEventNumber`` if another writer uses the same id, ``Unavailable`` when no store answers in
    time, ``UnknownOutcome`` when one does and acknowledges nothing (both go on when the call is repeated),
    ``InvalidArgument`` in another process than its own.
    """

    def __init__(self, writers: BlockWriters, segment: str, writer_id: bytes) -> None:
        self.segment = segment
        self.writer_id = writer_id
        self._writers = writers
        self._channel: _Channel | None = None
        self._is_set_up = False
        self._token = ""
        """What it was last set up with, or is being set up."""
        self._set_ups = 0
        """Counts how often a store answered that it is."""
        self.attachment = 0
        """Counts how often the writer was attached to a channel. What was sent before is answered to nobody."""
        self._detached_by = ""
        """Why it is attached to none."""
        self._failure: PravegaError | None = None
        self._is_sealed = False
        """Whether a store has said so of the segment: what it tells at a set-up is final then."""
        self._event_number = 0
        self._number_conflicts = 0
        self.pieces_taken = 0
        """Pieces that ``write`` has taken over, also where it raised or was interrupted."""
        self._gathered: list[Piece] = []
        self._gathered_bytes = 0
        self._in_flight: deque[_Block] = deque()

    @property
    def gathered_bytes(self) -> int:
        return self._gathered_bytes

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def write(self, data: memoryview, event_count: int, tag: Any = None) -> None:
        """Add whole framed events. ``data`` must stay unchanged until it is acknowledged.

        Also when this raises, ``data`` is among what ``unacknowledged`` gives. Blocks of this and of other segments
        are sent early, and waited for, where all writers together hold too much (``write_budget.py``).
        """
        try:
            self._writers.budget.hold(self, len(data))
            full = self._take_gathered() if self._gathered_bytes + len(data) > block_bytes_max else None
            self._gather(Piece(data, event_count, tag))
            if full is not None:
                self._dispatch(full)
            self._send_if_full()
            self._writers.budget.keep()
        except BaseException as error:
            self._writers.ended_by(error)
            raise

    def write_first(self, pieces: deque[Piece]) -> None:
        """Take the first piece off its owner's queue and ``write`` it. Where this raises, the piece is off the queue if
        the writer has taken it, and still there if not."""
        piece, taken = pieces[0], self.pieces_taken
        try:
            self.write(piece.data, piece.event_count, piece.tag)
        finally:
            if self.pieces_taken > taken:
                pieces.popleft()

    def _gather(self, piece: Piece) -> None:
        self._gathered_bytes += len(piece.data)
        # An interrupt comes when a call begins or has returned: all three, or none.
        self.pieces_taken += 1
        self._gathered.append(piece)

    def _send_if_full(self) -> None:
        if self._gathered_bytes >= block_bytes_max and (block := self._take_gathered()) is not None:
            self._dispatch(block)

    def start_flush(self) -> None:
        """Send what has gathered, without waiting for the answer."""
        try:
            if (block := self._take_gathered()) is not None:
                self._dispatch(block)
        except BaseException as error:
            self._writers.ended_by(error)
            raise

    def flush(self) -> None:
        """Return when everything written is durable."""
        self.start_flush()
        try:
            self._wait(lambda: not self._in_flight)
        except BaseException as error:
            self._writers.ended_by(error)
            raise

    def unacknowledged(self) -> list[Piece]:
        """Return the pieces that were written and never acknowledged, in order."""
        return [piece for block in self._in_flight for piece in block.pieces] + self._gathered

    def close(self) -> None:
        """Forget this writer; what is not flushed may or may not be written."""
        self._detach("the writer is closed")
        self._writers.budget.forget(self)

    def _take_gathered(self) -> _Block | None:
        """Turn the gathered pieces into a block in flight, which is sent again whenever the writer reconnects."""
        self._writers.check_process()
        if not self._gathered:
            return None
        event_count = sum(piece.event_count for piece in self._gathered)
        block = _Block(self._gathered, event_count, self._event_number + event_count)
        # An interrupt comes when a call begins or has returned: the pieces are gathered still, or in flight.
        self._event_number, self._gathered, self._gathered_bytes = block.last_event_number, [], 0
        self._in_flight.append(block)
        return block

    def _dispatch(self, block: _Block) -> None:
        """Send a block, or begin to set the writer up: it is sent with the answer to that."""
        if self._is_set_up:
            self._send(block)
        elif self._channel is None and self._failure is None:
            self._begin()
        self._wait(lambda: len(self._in_flight) < blocks_in_flight_max)

    def _send(self, block: _Block) -> None:
        """A lost connection shows when its answers are read."""
        channel = self._channel
        check(channel is not None and self._is_set_up, "block of a writer that is not set up", segment=self.segment)
        if channel is None or not channel.socket.is_open:
            return
        request_id = channel.socket.next_request_id()
        channel.requests[request_id] = self, self.attachment
        self._writers.note_sent()
        try:
            frame = _block_frame(self.writer_id, block, request_id)
            channel.socket.send_parts(frame, self._has_moved)
        except UnknownOutcome:
            self._writers.lost(channel)

    def _wait(self, done: Callable[[], bool]) -> None:
        """Read answers, of all writers of the socket, until ``done``; attach again whenever it is needed."""
        began_s = self._writers.monotonic_s()
        pause_s, acknowledged = 0.0, self._writers.acknowledged_blocks
        while True:
            if self._failure is not None:
                raise self._failure
            if done() and (self._channel is not None or not self._in_flight):
                return
            self._check_progress(began_s)
            if self._channel is None:
                if self._writers.acknowledged_blocks > acknowledged:
                    pause_s, acknowledged = 0.0, self._writers.acknowledged_blocks
                if pause_s:
                    self._writers.sleep(pause_s)
                self._attach()
                # A store may set it up and refuse the blocks, again and again.
                pause_s = min(max(2 * pause_s, retry_delay_min_s), retry_delay_max_s)
            else:
                self._writers.receive(self._channel, self._has_moved)

    def _check_progress(self, began_s: float) -> None:
        """``UnknownOutcome`` once nothing was acknowledged for too long, to this writer or to others: its blocks may
        wait behind theirs. The connection is given up, so that the next call asks the store what it has."""
        if self._writers.since_progress_s(began_s) > self._writers.acknowledge_time_s:
            if self._channel is not None:
                self._writers.lost(self._channel)
            self._writers.has_given_up = True
            events = sum(block.event_count for block in self._in_flight)
            raise UnknownOutcome(
                f"{self.segment}: {events} events were sent, and nothing was acknowledged for "
                f"{self._writers.acknowledge_time_s:.0f} s, though stores set the writer up; they are written or not"
            )

    def _begin(self) -> None:
        """Ask to be set up, and wait for nothing: thousands of segments cost no round trip each."""
        try:
            self._ask_to_set_up()
        except PravegaError as error:
            if not error.may_be_repeated(idempotent=True):
                raise
            self._detach(str(error))  # Whoever waits tries again, for as long as that may take.

    def _attach(self) -> None:
        deadline_s = self._writers.monotonic_s() + self._writers.attach_time_s
        delay_s = retry_delay_min_s
        while True:
            try:
                self._set_up()
                return
            except PravegaError as error:
                if self._failure is not None or not error.may_be_repeated(idempotent=True):
                    raise
                failure = error
            self._writers.resolver.forget(self.segment)
            if self._writers.monotonic_s() + delay_s > deadline_s:
                raise Unavailable(
                    f"{self.segment}: no store took the appends for {self._writers.attach_time_s:.0f} s: {failure}"
                ) from failure
            self._writers.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)

    def _set_up(self) -> None:
        """One try: ask, and learn what the store has. A connection that is lost after that, while blocks are sent
        again, was not for want of a store: one that holds them back reads no more of them than its buffers take."""
        self._ask_to_set_up()
        set_ups = self._set_ups
        while self._set_ups == set_ups:
            if self._failure is not None:
                raise self._failure
            if self._channel is None:
                raise UnknownOutcome(f"{self.segment}: {self._detached_by}")
            self._writers.receive(self._channel, self._has_moved)

    def _ask_to_set_up(self) -> None:
        """Connect and say who we are."""
        self._token = self._writers.resolver.token(self.segment)
        self._detach("it is set up again")
        channel = self._writers.channel(self.segment)
        while len(channel.set_ups) >= set_ups_in_flight_max:
            self._writers.receive(channel, lambda: self._is_elsewhere(channel))
        channel.writers[self.writer_id] = self
        self._channel = channel
        request_id = channel.socket.next_request_id()
        channel.requests[request_id] = self, self.attachment
        channel.set_ups.add(request_id)
        channel.set_up_count += 1
        try:
            channel.socket.send(self.set_up_request(request_id))
        except UnknownOutcome:
            self._writers.lost(channel)
            raise

    def set_up_request(self, request_id: int) -> c.SetupAppend:
        """The request by whose token the store lets it append."""
        return c.SetupAppend(request_id, self.writer_id, self.segment, self._token)

    def _has_moved(self) -> bool:
        """Whether another store has the segment; asked while this one is silent."""
        if self._channel is None:
            return False
        if self._is_elsewhere(self._channel):
            return True
        self._writers.tell_of_silence(self.segment, self._channel.socket.endpoint)
        return False

    def _is_elsewhere(self, channel: _Channel) -> bool:
        return has_moved(self._writers.resolver, self.segment, channel.socket.endpoint)

    def _detach(self, reason: str) -> None:
        self._is_set_up = False
        self.attachment += 1
        self._detached_by = reason
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.writers.pop(self.writer_id, None)
            self._writers.left(channel)

    def on_set_up(self, last_event_number: int) -> None:
        """The store knows the writer: what it does not have yet is sent."""
        was_set_up, self._is_set_up = self._is_set_up, True
        self._set_ups += 1
        self.on_acknowledged(last_event_number)
        if was_set_up:
            return  # It was set up again before the first answer came; all is on its way.
        for block in list(self._in_flight):
            if not self._is_set_up:
                return  # The connection was lost.
            self._send(block)

    def on_acknowledged(self, event_number: int) -> None:
        while self._in_flight and self._in_flight[0].last_event_number <= event_number:
            self._writers.budget.release(self, self._in_flight.popleft().size_bytes)
            self._writers.note_progress()
            self._number_conflicts = 0

    def on_failed(self, error: PravegaError) -> None:
        """The store refused a block or the set-up: look for the owner again, or give up."""
        # A store that lost the segment without knowing it yet, as after a pause, answers by what it knew.
        is_elsewhere = isinstance(error, SegmentNotFound) and self._has_moved()
        if is_elsewhere or isinstance(error, ContainerNotHosted):
            self._look_again(error)
        elif isinstance(error, BadEventNumber) and self._number_conflicts < number_conflicts_max:
            self._number_conflicts += 1
            self._detach(str(error))
        elif isinstance(error, SegmentSealed) and self._set_ups > 1 and not self._is_sealed:
            # What is refused now may be there: a lost connection's block can come before the seal and after the set-up,
            # which did not tell of it. The next one does.
            self._is_sealed = True
            self._detach(str(error))
        else:
            self._failure = error

    def on_set_up_refused(self, error: PravegaError) -> None:
        """Detach, to be set up again, where the refusal may pass: the token has ended, or the store has no room now."""
        if error.may_be_repeated(idempotent=True):
            self._look_again(error)
        else:
            self.on_failed(error)

    def _look_again(self, error: PravegaError) -> None:
        """Ask for the owner and for a new token before the next try."""
        self._writers.resolver.forget(self.segment)
        self._detach(str(error))

    def on_lost(self) -> None:
        self._detach("the store closed the connection")


class BlockWriters:
    """All block writers of one thread, and the sockets that they share. Made one per process, never forked.

    A socket without writers for ``idle_time_max_s``, as to a store that lost its segments, is closed with the next
    set-up of a writer.
    """

    def __init__(
        self,
        resolver: BlockingResolver,
        *,
        attach_time_s: float = attach_time_max_s,
        acknowledge_time_s: float = acknowledge_time_max_s,
        held_bytes: int = held_bytes_max,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.resolver = resolver
        self.attach_time_s = attach_time_s
        self.acknowledge_time_s = acknowledge_time_s
        self.monotonic_s = monotonic_s
        self.sleep = sleep
        self.budget = WriteBudget(held_bytes)
        self._channels: dict[Endpoint, _Channel] = {}
        self._ends = IdleEnds[Endpoint](monotonic_s)
        """Since when channels have no writers. One that has some again may be among them."""
        self._process = OwnProcess()
        self._progress_s = monotonic_s()
        """When a block was last acknowledged."""
        self._sent_s = self._told_s = -math.inf
        """When a block was last sent, and when a silent store was last told of."""
        self.acknowledged_blocks = 0
        self.has_given_up = False
        """Whether a call waited for ``acknowledge_time_s`` in vain, and no block was acknowledged since."""

    def open(self, segment: str, writer_id: bytes) -> BlockWriter:
        """A writer with an id of 16 bytes that nobody else uses; the segment is looked for at the first send."""
        return BlockWriter(self, segment, writer_id)

    def close(self) -> None:
        for channel in list(self._channels.values()):
            self.lost(channel)

    def check_process(self) -> None:
        """``InvalidArgument`` after a fork: both processes would number their events alike, as one writer, and a store
        takes the events of the slower one for those that it has."""
        self._process.check("a writer")

    def note_progress(self) -> None:
        self._progress_s = self.monotonic_s()
        self.acknowledged_blocks += 1
        self.has_given_up = False

    def note_sent(self) -> None:
        self._sent_s = self.monotonic_s()

    def tell_of_silence(self, segment: str, endpoint: Endpoint) -> None:
        """Warn that a store is waited for, once that takes long: a program that stands still should say why."""
        now_s, silent_s = self.monotonic_s(), self.since_progress_s(self._sent_s)
        if silent_s < notice_time_min_s or now_s - self._told_s < notice_every_s:
            return
        self._told_s = now_s
        _log.warning(
            "the segment store at %s has acknowledged no append to %s for %.0f s; waiting for it, up to %.0f s. A "
            "store holds appends back while Tier 1 is full or Tier 2 is behind, which its /health says",
            endpoint,
            segment,
            silent_s,
            self.acknowledge_time_s,
        )

    def since_progress_s(self, began_s: float) -> float:
        """Seconds of a wait in which no block was acknowledged, of any writer, up to now."""
        return self.monotonic_s() - max(began_s, self._progress_s)

    def ended_by(self, error: BaseException) -> None:
        """A call of a writer raised: other errors than those of its contract, as Ctrl-C, may have stopped it anywhere.

        A block may not have been sent, or an answer be lost. Stores say what they have when writers attach again.
        """
        if not isinstance(error, PravegaError):
            self.close()

    def channel(self, segment: str) -> _Channel:
        endpoint = self.resolver.resolve(segment)
        self._ends.remove(endpoint)
        self._end_idle()
        channel = self._channels.get(endpoint)
        if channel is not None and channel.is_worn:
            self.lost(channel)
        if channel is None or not channel.socket.is_open:
            channel = _Channel(WireSocket(endpoint, reply_time_s=reply_time_max_s))
            self._channels[endpoint] = channel
        return channel

    def left(self, channel: _Channel) -> None:
        """A writer is not on the channel any more: set up again at once, as after a refusal, or on another one."""
        if not channel.writers and channel.socket.is_open:
            self._ends.used(channel.socket.endpoint)

    def _end_idle(self) -> None:
        for endpoint in self._ends.ended():
            channel = self._channels.get(endpoint)
            if channel is not None and not channel.writers:
                self.lost(channel)

    def receive(self, channel: _Channel, has_moved: HasMoved) -> None:
        """Take one answer off the socket and give it to its writer."""
        try:
            reply = channel.socket.receive(has_moved)
        except UnknownOutcome:
            self.lost(channel)
            return
        match reply:
            case c.DataAppended():
                channel.requests.pop(reply.request_id, None)
                if (writer := channel.writers.get(reply.writer_id)) is not None:
                    writer.on_acknowledged(reply.event_number)
            case c.AppendSetup():
                channel.requests.pop(reply.request_id, None)
                channel.set_ups.discard(reply.request_id)
                if (writer := channel.writers.get(reply.writer_id)) is not None:
                    writer.on_set_up(reply.last_event_number)
            case _:
                self._failed(channel, reply)

    def lost(self, channel: _Channel) -> None:
        """The connection is gone: every writer on it attaches again when it is used next."""
        channel.socket.close()
        for writer in list(channel.writers.values()):
            writer.on_lost()
        channel.writers.clear()
        channel.requests.clear()
        channel.set_ups.clear()
        endpoint = channel.socket.endpoint
        if self._channels.get(endpoint) is channel:
            del self._channels[endpoint]
            self._ends.remove(endpoint)

    def _failed(self, channel: _Channel, reply: c.Command) -> None:
        request_id = getattr(reply, "request_id", -1)
        is_set_up = request_id in channel.set_ups
        channel.set_ups.discard(request_id)
        writer, attachment = channel.requests.pop(request_id, (None, 0))
        if writer is None and isinstance(reply, c.InvalidEventNumber):
            writer = channel.writers.get(reply.writer_id)
        elif writer is not None and writer.attachment != attachment:
            return  # Its writer has attached again since, or is closed.
        if writer is None:
            return
        error = error_of(reply, writer.segment, writer.set_up_request)
        if error is None:
            self.lost(channel)
        elif is_set_up:
            writer.on_set_up_refused(error)
        else:
            writer.on_failed(error)


def _block_frame(writer_id: bytes, block: _Block, request_id: int) -> list[bytes | memoryview]:
    """The block as one ``AppendBlockEnd`` whose data stay in the pieces that they came in."""
    size = block.size_bytes
    head = _BLOCK_END_HEAD.pack(c.AppendBlockEnd.type_code, _block_end_fixed_bytes + size, writer_id, size, size)
    tail = _BLOCK_END_TAIL.pack(block.event_count, block.last_event_number, request_id)
    return [head, *(piece.data for piece in block.pieces), tail]
