"""Has the frames of one connection handled, in turns, and reads no more of it while something blocks.

Reading stops while the peer does not take its replies, waits for too many, or had too much refused, and at a frame
that brings bytes while too many of those are on their way, the store takes no more, or the scope has used up its limit
of bytes a second. Readers and the controllers' own tables are never held up by bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from pravega_common import names
from pravega_common.wire.commands import (
    AppendBlock,
    AppendBlockEnd,
    ConditionalAppend,
    ConditionalBlockEnd,
    RemoveTableKeys,
    UpdateTableEntries,
)
from pravega_common.wire.framing import Frame, FrameParser
from segment_service.host.connection_load import ConnectionLoad
from segment_service.host.quota_bytes import (
    TABLE_UPDATES,
    bucket_of_frame,
    encoded_text_at,
    text_length_bytes,
    update_name_at,
)
from segment_service.host.reply_queue import ReplyQueue
from segment_service.host.server_parts import ServerParts
from segment_service.quotas.byte_bucket import ByteBucket

frames_per_turn_max: Final = 512
"""Frames of one connection cut out and handled before the other connections get their turn."""
requests_per_turn_max: Final = 16
"""Those of them that begin a task, reads apart: its work follows in the next turn, and takes as long as that of ten
appends. Reads begin together, as their bytes are counted together."""

_STORING: Final = frozenset(
    made.type_code
    for made in (
        AppendBlock,
        AppendBlockEnd,
        ConditionalAppend,
        ConditionalBlockEnd,
        UpdateTableEntries,
        RemoveTableKeys,
    )
)
_SYSTEM_SEGMENT: Final = (names.SYSTEM_SCOPE + "/").encode()


class PumpedConnection(Protocol):
    """The connection, as the pump sees it."""

    def frames_came(self, frames: Sequence[Frame]) -> None:
        """Note frames that are complete, before any of them is handled."""
        ...

    def handle(self, type_code: int, payload: memoryview) -> None: ...

    def no_frames_follow(self) -> None:
        """End for bytes that are no frame, once all frames in front of them are handled."""
        ...

    def limited_segment_of(self, writer_id: bytes) -> str:
        """The segment of a writer; empty if its bytes count for no scope."""
        ...

    def spawn_until_lost(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


class FramePump:
    """The frames of one connection that are not handled yet, and whether it is read."""

    def __init__(
        self,
        parts: ServerParts,
        parser: FrameParser,
        load: ConnectionLoad,
        replies: ReplyQueue,
        transport: asyncio.Transport,
        connection: PumpedConnection,
    ) -> None:
        self.reading_is_paused = False
        self._parser = parser
        self._load = load
        self._replies = replies
        self._transport: asyncio.Transport | None = transport
        self._connection = connection
        """Both until ``lost``, as they know the pump."""
        self._clock = parts.clock
        self._back_pressure = parts.back_pressure
        self._tokens = parts.tokens
        self._budget = parts.budgets.in_flight
        self._refusals = parts.budgets.refusals
        self._quotas = parts.quotas.inward
        self._backlog: deque[Frame] = deque()
        self._has_ended = False
        self._is_scheduled = False
        self._waits_for_gate = False
        self._is_held_back = False
        self._waits_for_turn = False
        self._turn: ByteBucket | None = None
        """The bucket at which it is this connection's turn."""

    def received(self, size: int) -> None:
        """Take the bytes that were received into the parser's buffer."""
        self._take(self._parser.buffer_updated(size))
        self.run()
        if self._parser.failure is not None:
            self.stop_reading()

    def wake(self) -> None:
        """Go on in the next turn of the loop, if there is anything to go on with."""
        if not self._is_scheduled and not self._has_ended and (self.reading_is_paused or self._backlog):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def hold_back(self, pause_s: float) -> None:
        """Read nothing more for a while."""
        if pause_s > 0 and not self._is_held_back and not self._has_ended:
            self._is_held_back = True
            self._refusals.held_back_total += 1
            self._connection.spawn_until_lost(self._go_on_after(pause_s), "refusals")

    def end(self) -> None:
        """Drop what was not handled, and handle nothing more."""
        self._has_ended = True
        self._backlog.clear()

    def lost(self) -> None:
        """Drop what was not handled, and let go of the connection."""
        self.end()
        self._transport = None
        self._budget.forget(self.wake)
        del self._connection

    # ---- turns -------------------------------------------------------------------------------------------------------

    def _take(self, frames: Sequence[Frame]) -> None:
        self._connection.frames_came(frames)
        if not self._has_ended:
            self._backlog.extend(frames)

    def run(self) -> None:
        """Handle frames until all are done or something blocks; then stop or resume reading accordingly."""
        backlog, load = self._backlog, self._load
        if not backlog and self._parser.has_more and not self._has_ended:
            self._take(self._parser.more())
        turn_end = len(backlog) - frames_per_turn_max
        requests_end = load.requests_begun + requests_per_turn_max
        while backlog:
            if self._is_stuffed or self._must_wait(*backlog[0]):
                self._wait_until_unblocked()
                return
            bucket = self._bucket_of(*backlog[0]) if self._quotas else None
            if bucket is not None and not (bucket.has_room if bucket is self._turn else bucket.is_open):
                self._wait_for_turn(bucket)
                return
            if len(backlog) == turn_end or load.requests_begun >= requests_end:
                self.stop_reading()
                self.wake()
                return
            type_code, payload = backlog.popleft()
            if bucket is not None:
                bucket.take(len(payload))
            self._connection.handle(type_code, payload)
        if not self._has_ended:
            self._all_handled()

    def _all_handled(self) -> None:
        if self._parser.failure is not None:
            self._connection.no_frames_follow()
        elif self._is_stuffed:
            self._wait_until_unblocked()
        elif self._parser.has_more:
            self.stop_reading()
            self.wake()
        elif self.reading_is_paused and self._transport is not None:
            self.reading_is_paused = False
            self._transport.resume_reading()

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def stop_reading(self) -> None:
        if not self.reading_is_paused and self._transport is not None:
            self.reading_is_paused = True
            self._transport.pause_reading()

    # ---- what blocks -------------------------------------------------------------------------------------------------

    @property
    def _is_stuffed(self) -> bool:
        """Whether nothing more of this peer can be handled: it does not take replies, waits for too many, or too much
        of its host was refused."""
        return self._replies.is_stuffed or self._is_held_back or self._load.has_too_many_requests

    def _must_wait(self, type_code: int, payload: memoryview) -> bool:
        """Whether a frame brings bytes that cannot be taken now."""
        if type_code not in _STORING:
            return False
        if self._load.is_full:
            return True
        return not self._back_pressure.is_open and not self._is_of_controller(type_code, payload)

    def _is_of_controller(self, type_code: int, payload: memoryview) -> bool:
        """Whether a frame updates a table of the controller, and comes from one as far as that can be known. These are
        small, and what truncation and retention wait for."""
        if type_code not in TABLE_UPDATES:
            return False
        name = encoded_text_at(payload, update_name_at)
        if not name.startswith(_SYSTEM_SEGMENT):
            return False
        if not self._tokens.is_on:
            return True
        token = encoded_text_at(payload, update_name_at + text_length_bytes + len(name))
        return self._tokens.is_internal(token.decode("ascii", "replace"))

    def _wait_until_unblocked(self) -> None:
        self.stop_reading()
        if self._budget.is_full:
            self._budget.wake_when_open(self.wake)
        if not self._back_pressure.is_open and not self._waits_for_gate:
            self._waits_for_gate = True
            self._connection.spawn_until_lost(self._wait_for_gate(), "back-pressure")

    async def _wait_for_gate(self) -> None:
        await self._back_pressure.wait_open()
        self._waits_for_gate = False
        self.run()

    async def _go_on_after(self, pause_s: float) -> None:
        await self._clock.sleep(pause_s)
        self._is_held_back = False
        self.run()

    def _bucket_of(self, type_code: int, payload: memoryview) -> ByteBucket | None:
        if type_code not in _STORING:
            return None
        return bucket_of_frame(self._quotas, type_code, payload, self._connection.limited_segment_of)

    def _wait_for_turn(self, bucket: ByteBucket) -> None:
        """Read nothing until the next frame may spend bytes of its scope, which others may be in line for, too."""
        self.stop_reading()
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._connection.spawn_until_lost(self._run_in_turn(bucket), "quota")

    async def _run_in_turn(self, bucket: ByteBucket) -> None:
        async with bucket.turn():
            self._waits_for_turn = False
            self._turn = bucket
            try:
                self.run()
            finally:
                self._turn = None
