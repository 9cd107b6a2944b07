"""Handles the appends of one connection: set-up, ordered acknowledgements, failures (docs/wire-protocol.md 3).

An append is handed to the store in the call that received it, with a compare-and-set of the writer's attribute from
the last event number handed over to its own. Results are answered in order per writer. A state machine without I/O:
replies leave through ``AppendPeer``, the store answers through futures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

import structlog

from pravega_common.errors import (
    BadAttributeUpdate,
    BadOffset,
    InvalidArgument,
    PravegaError,
    SegmentNotFound,
    UnsupportedOperation,
)
from pravega_common.names import is_index_segment
from pravega_common.runtime.clock import Clock
from pravega_common.services.security.delegation_tokens import skew_s
from pravega_common.wire.append_block import AppendDecoder, WireAppend
from pravega_common.wire.commands import (
    ILLEGAL_ARGUMENT,
    THROTTLED,
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    Command,
    ConditionalAppend,
    ConditionalBlockEnd,
    ConditionalCheckFailed,
    DataAppended,
    ErrorMessage,
    InvalidEventNumber,
    Padding,
    SetupAppend,
)
from pravega_common.wire.errors import WireProtocolError
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import SegmentStore
from segment_service.host.error_replies import error_reply
from segment_service.host.merged_writers import MergedWriters
from segment_service.host.refusals import refused_in
from segment_service.host.request_checks import check_is_no_table, check_segment_name, client_attribute
from segment_service.host.request_times import RequestTimes
from segment_service.host.token_check import TokenCheck

APPEND_COMMANDS: Final[frozenset[type[Command]]] = frozenset(
    {SetupAppend, AppendBlock, AppendBlockEnd, ConditionalAppend, ConditionalBlockEnd, Padding}
)
"""What ``AppendProcessor.accept`` takes."""

writers_per_connection_max: Final = 10_000
"""Set-ups that one connection may hold; Java closes its connections after 2,000 of them by itself."""

_log = structlog.get_logger(service="wire-server")
_REPLACE_IF_EQUALS = AttributeUpdateType.REPLACE_IF_EQUALS
_COUNT_EVENTS = {count: AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, count) for count in range(1, 513)}


class AppendPeer(Protocol):
    """The connection, as the append processor sees it."""

    def send(self, command: Command) -> None:
        """Queue a reply behind the earlier ones."""
        ...

    def close(self, reason: str) -> None:
        """Close after the replies queued so far."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None: ...

    def spawn_until_lost(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task that ends with the connection at the latest."""
        ...

    def in_flight_changed(self, bytes_delta: int, appends_delta: int) -> None:
        """Change the bytes and the number of appends that were taken and are not answered yet."""
        ...

    def block_is_open(self, size: int) -> None:
        """Note the bytes of the block that waits for its end, 0 if none does any more."""
        ...

    def refused(self) -> None:
        """Note that a request was refused."""
        ...

    def enter_writer(self) -> str:
        """Count one more writer that is set up; the reason why not, or an empty text."""
        ...

    def leave_writer(self) -> None:
        """Count one writer less."""
        ...


class _Writer:
    """One writer on one segment, as set up on this connection."""

    __slots__ = (
        "attribute_id",
        "began_s",
        "counts_for_quota",
        "failure",
        "in_flight",
        "last_acked",
        "last_stored",
        "segment",
        "timed",
        "token_ends_s",
        "waiting",
        "writer_id",
    )

    def __init__(self, segment: str, writer_id: bytes) -> None:
        self.segment = segment
        self.writer_id = writer_id
        self.attribute_id = AttributeId(writer_id)
        self.last_stored = NULL_ATTRIBUTE_VALUE
        self.last_acked = NULL_ATTRIBUTE_VALUE
        self.in_flight: deque[tuple[WireAppend, asyncio.Future[int]]] = deque()
        # Appends that arrived before the set-up was answered; None once it is.
        self.waiting: deque[WireAppend] | None = deque()
        self.failure: PravegaError | None = None
        self.token_ends_s: int | None = None
        self.timed: asyncio.Future[int] | None = None
        """The append whose time is taken, since ``began_s``."""
        self.began_s = 0.0
        self.counts_for_quota = True

    def fail(self, error: PravegaError) -> PravegaError:
        """Note why all appends fail from now on, unless that is known; returns the reason.

        Without its traceback, whose frames know the writer: only a long look of the collector would free the two.
        """
        if self.failure is None:
            self.failure = error.with_traceback(None)
        return self.failure


class AppendProcessor:
    """All writers of one connection."""

    def __init__(
        self,
        store: SegmentStore,
        peer: AppendPeer,
        tokens: TokenCheck,
        clock: Clock,
        times: RequestTimes,
        merged: MergedWriters,
    ) -> None:
        self._store = store
        self._merged = merged
        self._times = times
        self._clock = clock
        self._watched_end_s: int | None = None
        """The end of a token for which the watch waits; None without one."""
        self._peer = peer
        self._tokens = tokens
        self._decoder = AppendDecoder()
        self._writers: dict[bytes, _Writer] = {}

    @property
    def writer_count(self) -> int:
        """Writers that are set up, or were refused by their segment."""
        return len(self._writers)

    def close(self) -> None:
        """The connection has ended."""
        for writer in self._writers.values():
            self._merged.forget(writer.segment, self, writer.writer_id)

    def segment_merged(self, segment: str, writer_id: bytes) -> None:
        """Let go of a writer, unless appends of it are still to be answered."""
        writer = self._writers.get(writer_id)
        if writer is None or writer.segment != segment or writer.in_flight or writer.waiting is not None:
            return
        del self._writers[writer_id]
        self._decoder.forget(writer_id, segment)
        self._peer.leave_writer()

    def limited_segment_of(self, writer_id: bytes) -> str:
        """The segment that a writer is set up for, if its bytes count for a quota; empty for one that is not known."""
        writer = self._writers.get(writer_id)
        return "" if writer is None or not writer.counts_for_quota else writer.segment

    def accept(self, command: Command) -> None:
        """Take the next append command of the connection; raises ``WireProtocolError`` if it is not allowed."""
        if isinstance(command, SetupAppend) and not self._may_be_set_up(command):
            return
        had_block = self._decoder.has_open_block
        append = self._decoder.accept(command)
        if append is not None:
            if had_block:
                self._peer.block_is_open(0)
            self._append(append)
        elif isinstance(command, SetupAppend):
            self._set_up(command)
        elif isinstance(command, AppendBlock):
            self._peer.block_is_open(len(command.data))

    # ---- set-up ------------------------------------------------------------------------------------------------------

    def _may_be_set_up(self, request: SetupAppend) -> bool:
        """Refuses a writer whose segment or id cannot be, before anything is kept of it; whether it may go on."""
        try:
            check_segment_name(request.segment)
            client_attribute(request.writer_id)
        except InvalidArgument as error:
            self._peer.send(ErrorMessage(request.request_id, "", str(error), ILLEGAL_ARGUMENT))
            self._peer.refused()
            return False
        if request.writer_id not in self._writers and len(self._writers) >= writers_per_connection_max:
            raise WireProtocolError("SetupAppend", f"more than {writers_per_connection_max} writers on a connection")
        return True

    def _set_up(self, request: SetupAppend) -> None:
        writer = _Writer(request.segment, request.writer_id)
        known = self._writers.get(request.writer_id)
        reason = "" if known is not None else self._peer.enter_writer()
        if reason:
            self._decoder.forget(request.writer_id, request.segment)
            self._peer.send(ErrorMessage(request.request_id, request.segment, reason, THROTTLED))
            return
        # Nothing stands between the count and this: what the connection gives back when it ends is what it counted.
        self._writers[request.writer_id] = writer
        if known is not None:
            self._merged.forget(known.segment, self, request.writer_id)
        self._merged.set_up(request.segment, self, request.writer_id)
        writer.counts_for_quota = self._tokens.counts_for_quota(request)
        self._peer.spawn(self._finish_set_up(writer, request), "setup-append")

    async def _finish_set_up(self, writer: _Writer, request: SetupAppend) -> None:
        began_s = self._clock.monotonic_s()
        try:
            writer.token_ends_s = self._tokens.check(request)
            if is_index_segment(request.segment):
                raise UnsupportedOperation(f"{request.segment} is an index segment, which clients may only read")
            await check_is_no_table(self._store, request.segment)
            last_event_number = await self._store.get_attribute(request.segment, writer.attribute_id)
        except PravegaError as error:
            writer.fail(error)
            self._answer_failed_set_up(writer, request, error)
            return
        except BaseException:  # unforeseen, or the server stops: what waits is not handed over any more
            self._end_of_waiting(writer)
            raise
        self._watch_token_of(writer)
        writer.last_stored = writer.last_acked = last_event_number
        self._peer.send(AppendSetup(request.request_id, request.segment, request.writer_id, last_event_number))
        self._times.note_request(request, self._clock.monotonic_s() - began_s)
        for append in self._end_of_waiting(writer):
            self._hand_over(writer, append)

    def _end_of_waiting(self, writer: _Writer) -> Sequence[WireAppend]:
        """The appends that waited for the set-up, which count no more as such."""
        waiting, writer.waiting = writer.waiting or (), None
        for append in waiting:
            self._peer.in_flight_changed(-append.length, -1)
        return waiting

    def _watch_token_of(self, writer: _Writer) -> None:
        ends_s = writer.token_ends_s
        if ends_s is not None and (self._watched_end_s is None or ends_s < self._watched_end_s):
            self._watched_end_s = ends_s
            self._peer.spawn_until_lost(self._close_at_token_end(ends_s), "token-end")

    async def _close_at_token_end(self, end_s: int) -> None:
        """Close, as a real store does, when the token of a writer has ended: appends themselves carry none.

        Returns early when another one watches a token that ends sooner.
        """
        while self._watched_end_s == end_s:
            left_s = end_s + skew_s - self._clock.wall_ms() / 1000
            if left_s > 0:
                await self._clock.sleep(left_s)
                continue
            ends_s = [writer.token_ends_s for writer in self._writers.values() if writer.token_ends_s is not None]
            if not ends_s:  # Its writer is being set up again, or went with its segment.
                self._watched_end_s = None
                return
            if min(ends_s) <= end_s:
                self._peer.close("the token of a writer has ended")
                return
            end_s = self._watched_end_s = min(ends_s)

    def _answer_failed_set_up(self, writer: _Writer, request: SetupAppend, error: PravegaError) -> None:
        reply = error_reply(error, request.request_id, request.segment, "setupAppend")
        if reply is None:
            self._peer.close(f"setting up writer {writer.writer_id.hex()} on {writer.segment} failed: {error!r}")
        else:
            self._peer.send(reply)
            if refused_in(reply):
                self._peer.refused()
        for append in self._end_of_waiting(writer):
            self._fail(writer, append, error)

    # ---- appends -----------------------------------------------------------------------------------------------------

    def _append(self, append: WireAppend) -> None:
        writer = self._writers[append.writer_id]
        if writer.waiting is not None:
            writer.waiting.append(append)
            self._peer.in_flight_changed(append.length, 1)
        else:
            self._hand_over(writer, append)

    def _hand_over(self, writer: _Writer, append: WireAppend) -> None:
        if writer.failure is not None and not writer.in_flight:
            self._fail(writer, append, writer.failure)
            return
        number = append.event_number
        if number < writer.last_stored:
            name = writer.writer_id.hex()
            self._peer.close(f"event number {number} after {writer.last_stored} of writer {name} on {writer.segment}")
            return
        count = append.event_count
        updates = (
            AttributeUpdate(writer.attribute_id, _REPLACE_IF_EQUALS, number, writer.last_stored),
            _COUNT_EVENTS.get(count) or AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, count),
        )
        expected_offset = append.expected_offset if append.is_conditional else None
        future = self._store.append(writer.segment, append.parts, updates, expected_offset=expected_offset)
        writer.last_stored = number
        writer.in_flight.append((append, future))
        if writer.timed is None:
            writer.timed, writer.began_s = future, self._clock.monotonic_s()
        self._peer.in_flight_changed(append.length, 1)
        future.add_done_callback(lambda _: self._answer(writer))

    def _answer(self, writer: _Writer) -> None:
        """Answer, in order, every append at the head of the queue whose result is known."""
        in_flight = writer.in_flight
        while in_flight and in_flight[0][1].done():
            append, future = in_flight.popleft()
            self._peer.in_flight_changed(-append.length, -1)
            if future.cancelled():
                self._peer.close(f"append to {writer.segment} was cancelled by the store")
                return
            error = future.exception()
            if future is writer.timed:
                writer.timed = None
                if error is None:
                    self._times.appends.note(self._clock.monotonic_s() - writer.began_s)
            if error is None:
                self._acknowledge(writer, append, future.result())
            elif not isinstance(error, PravegaError):
                _log.error("append failed unforeseen", segment=writer.segment, exc_info=error)
                self._peer.close(f"append to {writer.segment} failed unforeseen: {error!r}")
                return
            elif isinstance(error, BadOffset) and writer.failure is None:
                self._refuse_condition(writer, append)
            else:
                self._fail(writer, append, error)

    def _acknowledge(self, writer: _Writer, append: WireAppend, length: int) -> None:
        previous = writer.last_acked
        # An event number that was acked before gets no second ack.
        if append.event_number > previous:
            writer.last_acked = append.event_number
            self._peer.send(DataAppended(append.writer_id, append.event_number, previous, append.request_id, length))

    def _refuse_condition(self, writer: _Writer, append: WireAppend) -> None:
        """Another length than expected: the writer stays, at the number it had before."""
        if not writer.in_flight:
            writer.last_stored = writer.last_acked
        self._peer.send(ConditionalCheckFailed(append.writer_id, append.event_number, append.request_id))

    def _fail(self, writer: _Writer, append: WireAppend, error: PravegaError) -> None:
        """Answer an append that failed; all later ones of the writer fail too, until it is set up again."""
        cause = writer.fail(error)
        number, request_id = append.event_number, append.request_id
        if isinstance(cause, BadAttributeUpdate):
            self._peer.send(InvalidEventNumber(writer.writer_id, request_id, "", number))
            self._peer.close(
                f"writer {writer.writer_id.hex()} on {writer.segment} was taken over by another connection"
            )
            return
        offset = -1 if isinstance(cause, SegmentNotFound) else number
        reply = None
        if not isinstance(cause, BadOffset | InvalidArgument):
            reply = error_reply(cause, request_id, writer.segment, "append", offset=offset)
        if reply is None:
            self._peer.close(f"append {number} to {writer.segment} failed: {cause!r}")
        else:
            self._peer.send(reply)
