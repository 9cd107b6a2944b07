"""Writes events with routing keys to a stream, for code without an event loop."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Final

from pravega_common.errors import (
    InvalidArgument,
    PravegaError,
    SegmentNotFound,
    SegmentSealed,
    StreamSealed,
    Throttled,
    Unavailable,
)
from pravega_common.hashing import position_of_key
from pravega_common.names import short_segment_name
from pravega_common.segment_router import SegmentRouter
from pravega_streams.client import StreamClient
from pravega_streams.event.block_writer import BlockWriter, BlockWriters, Piece
from pravega_streams.event.write_budget import held_bytes_max

event_bytes_max: Final = 8 * 1024 * 1024
"""The limit of one event without its header, as in all Pravega clients."""
unwritten_bytes_max: Final = 2 * held_bytes_max
"""Bytes that a writer holds above which it takes no event before they are written. It is at ease below half of that, so
these are of a caller that passes errors over: each of these writes leaves its event with the writer."""
epoch_wait_s: Final = 0.02
"""The first pause while a sealed segment has no successors yet: its stream's next epoch is on its way."""
epoch_wait_max_s: Final = 1.0
"""The pauses double up to this: a scale stands while a store is away, and all writers of the stream wait for it."""
epoch_time_max_s: Final = 120.0
"""How long the next epoch is waited for."""
_HEADER = struct.Struct(">ii")


def frame_event(event: bytes | bytearray | memoryview) -> memoryview:
    """The event as it is stored: type 0, length, bytes (docs/wire-protocol.md 5.1)."""
    try:
        if len(event) > event_bytes_max:
            raise InvalidArgument(f"an event of {len(event)} bytes is larger than {event_bytes_max} bytes")
        framed = _HEADER.pack(0, len(event)) + event
    except TypeError as error:
        raise InvalidArgument(f"an event is bytes, not {type(event).__name__}") from error
    if len(framed) != _HEADER.size + len(event):
        # As of an array of numbers: no reader would find the next event.
        raise InvalidArgument(f"{type(event).__name__} has items of several bytes; an event is bytes")
    return memoryview(framed)


def position_for(routing_key: str | None) -> float:
    """Returns the position of an event in [0, 1), any for one without a key; ``InvalidArgument`` for a key of another
    type: no other client would find its segment."""
    if routing_key is None:
        return random.random()
    if not isinstance(routing_key, str):
        raise InvalidArgument(f"a routing key is text, not {type(routing_key).__name__}")
    return position_of_key(routing_key)


class EventWriter:
    """Writes events in order per routing key; an event without a key goes anywhere. ``writer_id`` names it in reports
    of time.

    Threads may share it: their calls wait for each other. ``write`` returns before the event is durable, ``flush`` when
    all are. A segment that was sealed by a scale event is followed by its successors, to which what it did not take is
    written again, in order. Where that fails the next call goes on with it, before anything else. Also an event whose
    ``write`` raised an error, but for ``InvalidArgument`` and ``Throttled``, is this writer's: it is durable once
    ``flush`` returns. ``with`` closes the writer, and flushes nothing where an error leaves it after stores
    acknowledged nothing for an hour. Errors: ``InvalidArgument`` (an event of another size or kind, or after
    ``close``), ``StreamSealed``, ``Throttled`` (the writer holds too much that it could not write), and those of
    ``BlockWriter``.
    """

    def __init__(self, client: StreamClient, scope: str, stream: str) -> None:
        self._client = client
        self._scope = scope
        self._stream = stream
        self._turn = threading.RLock()  # As a Ctrl-C in Python 3.14 may leave it held by its thread.
        self._blocks = BlockWriters(client.segments.endpoints)
        self._writers: dict[int, BlockWriter] = {}
        """By segment; all of them are among the router's."""
        self._unwritten: deque[Piece] = deque()
        """Pieces that no writer of a segment has, in the order in which they were written: they leave first."""
        self._left_bytes = 0
        """Bytes of events whose ``write`` raised an error since nothing was left to write."""
        self._router = self._current_router()
        self.writer_id = uuid.uuid4().hex
        self._has_noted = False
        self._is_closed = False

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._turn:
            if kind is not None and self._blocks.has_given_up:
                self._blocks.close()  # Its error is on its way already, and a flush would wait for as long once more.
            else:
                self.close()

    def write(self, event: bytes | bytearray | memoryview, routing_key: str | None = None) -> None:
        """Add one event."""
        piece = Piece(frame_event(event), 1, position_for(routing_key))
        with self._turn:
            self._check_open("takes no more events")
            self._make_room()
            self._unwritten.append(piece)
            try:
                self._write_unwritten()
            except BaseException:
                self._left_bytes += len(piece.data)
                raise

    def _check_open(self, what: str) -> None:
        if self._is_closed:
            raise InvalidArgument(f"the writer of {self._scope}/{self._stream} is closed and {what}")

    def _make_room(self) -> None:
        """Flush, before another event is taken, where earlier errors have left too much."""
        held_bytes = self._blocks.budget.held_bytes + self._left_bytes
        if held_bytes <= unwritten_bytes_max:
            return
        try:
            self.flush()
        except PravegaError as error:
            raise Throttled(
                f"{held_bytes} bytes of earlier events are not written to {self._scope}/{self._stream}, so this event "
                f"was not taken: {error}"
            ) from error

    def flush(self) -> None:
        """Return when everything written is durable."""
        with self._turn:
            while True:
                self._write_unwritten()
                _start_flush(self._writers.values())
                sealed_id = self._flush_writers()
                if sealed_id is None:
                    return
                self._follow(sealed_id)

    def note_time(self, time_ms: int) -> None:
        """Flush, and note that the events written so far belong to a time of this writer's own, and later ones to no
        earlier one.

        Of the times of a stream's writers controllers make watermarks, by which Pravega's Java client tells readers
        their time window. ``InvalidArgument`` if the time goes back.
        """
        with self._turn:
            self._check_open("notes no more times")
            self.flush()
            position = self._lengths()
            gone = [item.segment_id for item in self._router.segments if item.segment_id not in position]
            if gone:
                # Nothing is left to write: only a refused append would have told of the scale before the truncation.
                self._follow(gone[0])
                position = self._lengths()
            self._client.controller.note_time(self._scope, self._stream, self.writer_id, position, time_ms)
            self._has_noted = True

    def close(self) -> None:
        """Flush and give the connections up, these also where the flush raises.

        After an error the call may be repeated: it goes on with what is not durable yet. Once it has returned nobody
        waits for this writer's time any more.
        """
        with self._turn:
            try:
                self.flush()
            finally:
                self._blocks.close()
            self._is_closed = True
            if self._has_noted:
                with contextlib.suppress(PravegaError):  # The events are durable; its time-out ends the wait as well.
                    self._client.controller.remove_writer(self._scope, self._stream, self.writer_id)

    def _lengths(self) -> dict[int, int]:
        """The lengths of the segments that the writer knows, by id, without those that are gone."""
        ids = [item.segment_id for item in self._router.segments]
        infos = self._client.segment_infos(self._scope, self._stream, ids)
        return {item: info.length for item, info in infos.items()}

    def _flush_writers(self) -> int | None:
        """Flush all, or up to one whose segment is gone: its id."""
        for segment_id, writer in self._writers.items():
            try:
                writer.flush()
            except (SegmentSealed, SegmentNotFound):
                return segment_id
        return None

    def _write_unwritten(self) -> None:
        while self._unwritten:
            segment_id = self._router.segment_of(self._unwritten[0].tag).segment_id
            try:
                self._writer_of(segment_id).write_first(self._unwritten)
            except (SegmentSealed, SegmentNotFound):
                self._follow(segment_id)
        self._left_bytes = 0

    def _writer_of(self, segment_id: int) -> BlockWriter:
        writer = self._writers.get(segment_id)
        if writer is None:
            name = next(item.name for item in self._router.segments if item.segment_id == segment_id)
            writer = self._blocks.open(name, uuid.uuid4().bytes)
            self._writers[segment_id] = writer
        return writer

    def _follow(self, sealed_id: int) -> None:
        """Take the stream's present segments. What those that are gone did not take is to be written again, first.

        That is all of them, and not only the one that is known to be sealed: a later event of a key must not come to
        the successor before an earlier one that still waits for the answer of another predecessor.
        """
        router = self._router_after(sealed_id)
        present = {item.segment_id for item in router.segments}
        gone = [writer for segment_id, writer in self._writers.items() if segment_id not in present]
        left = _left_by(gone)
        for writer in gone:
            writer.close()
        writers = {segment_id: writer for segment_id, writer in self._writers.items() if segment_id in present}
        # At once, so that whatever ends this before or after loses nothing.
        self._router, self._writers, self._unwritten = router, writers, deque([*left, *self._unwritten])

    def _router_after(self, sealed_id: int) -> SegmentRouter:
        """The present segments, once the sealed one is not among them: its stream may not have the next epoch yet."""
        deadline_s, pause_s = self._blocks.monotonic_s() + epoch_time_max_s, epoch_wait_s
        while True:
            router = self._current_router()
            if all(item.segment_id != sealed_id for item in router.segments):
                return router
            if self._blocks.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"segment {short_segment_name(sealed_id)} of {self._scope}/{self._stream} is sealed, but its "
                    f"stream names it as open for {epoch_time_max_s:.0f} s"
                )
            self._blocks.sleep(pause_s)
            pause_s = min(2 * pause_s, epoch_wait_max_s)

    def _current_router(self) -> SegmentRouter:
        segments = self._client.controller.current_segments(self._scope, self._stream)
        if not segments:
            raise StreamSealed(f"stream {self._scope}/{self._stream} is sealed and takes no further events")
        return SegmentRouter(segments)


def _start_flush(writers: Iterable[BlockWriter]) -> None:
    for writer in writers:
        with contextlib.suppress(SegmentSealed, SegmentNotFound):  # It says so again when it is waited for.
            writer.start_flush()


def _left_by(gone: list[BlockWriter]) -> list[Piece]:
    """The pieces that segments that are gone did not take, which is certain when all their answers are there."""
    _start_flush(gone)
    for writer in gone:
        with contextlib.suppress(SegmentSealed, SegmentNotFound):
            writer.flush()
    return [piece for writer in gone for piece in writer.unacknowledged()]
