"""Serves one connection: frames in, commands to the processors, replies out, and when to stop reading.

The transport fills the frame parser's buffer, commands are handled in the call that received them (appends) or as one
task each (everything else), and replies leave together once per loop turn. Reading stops while the peer does not take
its replies or waits for too many, and at a frame that brings bytes while too many of those are on their way, the
store takes no more, or the scope has used up its limit of bytes a second.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, cast

import structlog

from pravega_common import names
from pravega_common.errors import InvalidArgument
from pravega_common.model.table_limits import update_entries_max
from pravega_common.runtime.clock import Clock
from pravega_common.wire import codec, versions
from pravega_common.wire.commands import (
    COMMANDS,
    ILLEGAL_ARGUMENT,
    THROTTLED,
    AppendBlock,
    AppendBlockEnd,
    Command,
    ConditionalAppend,
    ConditionalBlockEnd,
    CreateTransientSegment,
    ErrorMessage,
    Hello,
    KeepAlive,
    ReadSegment,
    RemoveTableKeys,
    RequestBatch,
    SegmentsMerged,
    UpdateTableEntries,
)
from pravega_common.wire.errors import TooManyItems, WireDecodeError, WireProtocolError
from pravega_common.wire.framing import Frame, FrameParser
from segment_service.contracts.segment_store import BackPressure, ReadResult, SegmentStore
from segment_service.contracts.spawn import Spawn
from segment_service.host.append_processor import APPEND_COMMANDS, AppendProcessor
from segment_service.host.budgets import ServerBudgets
from segment_service.host.peer_watch import PeerWatch
from segment_service.host.quota_bytes import (
    TABLE_READS,
    TABLE_UPDATES,
    Owed,
    bucket_of_frame,
    owed_for,
    paid,
    pay_in_turn,
)
from segment_service.host.read_batches import begins_with_read
from segment_service.host.refusals import connection_refusals, new_connection_pause_max_s, refused_in
from segment_service.host.request_batches import CloseConnection
from segment_service.host.request_processor import RequestProcessor
from segment_service.host.request_times import RequestTimes
from segment_service.host.tls_records import in_records
from segment_service.host.token_check import TokenCheck
from segment_service.quotas.byte_bucket import ByteBucket
from segment_service.quotas.scope_buckets import ByteQuotas

bytes_in_flight_max: Final = 16 * 1024 * 1024
"""Bytes of one connection's appends and requests that are not answered yet, above which it is not read: further than
the next frame that brings bytes, or at all if the requests alone are that many."""
appends_in_flight_max: Final = 8_192
"""Appends of one connection that are not answered yet, above which it is not read."""
requests_in_flight_max: Final = 256
"""Requests of one connection, reads apart, that are being served, above which it is not read."""
reads_in_flight_max: Final = 4_096
"""Reads of one connection that may wait; one more closes it, since not reading would let the others starve."""
quota_reads_max: Final = 4_096
"""Reads that may wait for the quota of one scope; one more is refused, so that those of others find room."""
request_items_max: Final = update_entries_max
"""Keys, entries, sources or attribute updates of one request; one with more is refused before they are decoded."""
frames_per_turn_max: Final = 512
"""Frames of one connection cut out and handled before the other connections get their turn."""
requests_per_turn_max: Final = 16
"""Those of them that begin a task, reads apart: its work follows in the next turn, and takes as long as that of ten
appends. Reads begin together, as their bytes are counted together."""
unsent_bytes_max: Final = 4 * 1024 * 1024
"""Reply bytes that a peer has not taken yet, above which its requests wait."""
close_linger_s: Final = 5.0
"""How long a closed connection may take to send its last replies before it is cut."""
transient_segments_max: Final = 1_024
"""Transient segments that one connection may have at a time."""
transient_delete_attempts_max: Final = 5
transient_delete_pause_s: Final = 1.0

_log = structlog.get_logger(service="wire-server")
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
_LOCAL_PEER: Final = "127.0.0.1"
_SYSTEM_SEGMENT: Final = (names.SYSTEM_SCOPE + "/").encode()
_segment_name_start: Final = 10
"""Where the name begins in a table update: after the request id and the length of the name."""
_TEXT_BYTES: Final = struct.Struct(">H")


def _is_system_update(type_code: int, payload: memoryview) -> bool:
    """Whether a frame updates a table of the controller: small, and what truncation and retention wait for."""
    if type_code not in TABLE_UPDATES:
        return False
    end = _segment_name_start + len(_SYSTEM_SEGMENT)
    return payload[_segment_name_start:end] == _SYSTEM_SEGMENT


def _token_of_update(payload: memoryview) -> str:
    """The token of a table update, which follows the name; empty if it is cut off."""
    (name_bytes,) = _TEXT_BYTES.unpack_from(payload, _segment_name_start - _TEXT_BYTES.size)
    start = _segment_name_start + name_bytes
    if len(payload) < start + _TEXT_BYTES.size:
        return ""
    (token_bytes,) = _TEXT_BYTES.unpack_from(payload, start)
    start += _TEXT_BYTES.size
    return bytes(payload[start : start + token_bytes]).decode("ascii", "replace")


class Connection(asyncio.BufferedProtocol):
    """The server's side of one socket."""

    def __init__(
        self,
        store: SegmentStore,
        requests: RequestProcessor,
        back_pressure: BackPressure,
        budgets: ServerBudgets,
        clock: Clock,
        tokens: TokenCheck,
        times: RequestTimes,
        spawn: Spawn,
        on_made: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
        quotas: ByteQuotas,
    ) -> None:
        self.peer_name = "?"
        self.peer_host = "?"
        self.close_reason: str | None = None
        self.cleanup: asyncio.Task[Any] | None = None
        self._requests = requests
        self._back_pressure = back_pressure
        self._budgets = budgets
        self._budget = budgets.in_flight
        self._clock = clock
        self._tokens = tokens
        self._times = times
        self._quotas = quotas
        self._waits_for_turn = False
        self._turn: ByteBucket | None = None
        """The bucket at which it is this connection's turn."""
        self._spawn = spawn
        self._on_made = on_made
        self._on_lost = on_lost
        self._store = store
        self._parser = FrameParser(frames_max=frames_per_turn_max)
        self._appends: AppendProcessor
        self._watch: PeerWatch
        """Both from ``connection_made`` until ``connection_lost``, as they know the connection: with them it would be
        a cycle of objects, which only a long look of the garbage collector frees."""
        self.on_probation: Callable[[Command], str] | None = None
        """Decides by the first request that says anything whether the connection may stay: the reason why not, or an
        empty text. ``None`` once that is decided."""
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Frame] = deque()
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._written_bytes = 0
        """Reply bytes that the transport was given."""
        self._speaks_tls = False
        self._write_paused = False
        self._read_paused = False
        self._pump_scheduled = False
        self._waits_for_gate = False
        self._is_held_back = False
        self._bytes_in_flight = 0
        self._appends_in_flight = 0
        self._requests_in_flight = 0
        self._request_bytes = 0
        """Bytes of requests without a reply. Unlike ``_bytes_in_flight`` they have those whose answer was made, and is
        made again when the peer may have it: these wait for nothing of the store's, and hold nobody else up."""
        self._tasks_begun = 0
        self._reads: set[asyncio.Task[Any]] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._slow_reads = asyncio.Lock()
        self._transient_segments: set[str] = set()
        self._cleanup_attempts = transient_delete_attempts_max
        self._is_lost = False
        self._until_lost: set[asyncio.Task[Any]] = set()

    # ---- transport callbacks -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=unsent_bytes_max)
        self._speaks_tls = transport.get_extra_info("sslcontext") is not None
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_name = str(peer[0]), f"{peer[0]}:{peer[1]}"
        else:
            # A Unix socket: a client of this machine, counted with those that come through the port.
            self.peer_host, self.peer_name = _LOCAL_PEER, f"{_LOCAL_PEER} (Unix socket)"
        merged = self._budgets.merged_writers
        self._appends = AppendProcessor(self._store, self, self._tokens, self._clock, self._times, merged)
        self._watch = PeerWatch(self._budgets, self._parser, self)
        self._watch.connected(transport.get_extra_info("socket"))
        self._hold_back(min(self._budgets.refusals.pause_s(self.peer_host), new_connection_pause_max_s))
        self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._parser.buffer_updated(nbytes)
        self._take(frames)
        if self.close_reason is None:
            self._pump()
        self._watch.received(len(frames))
        if self._parser.failure is not None:
            self._stop_reading()

    def _take(self, frames: Sequence[Frame]) -> None:
        if self.close_reason is None and self.on_probation is not None:
            self._decide_probation(frames)
        if self.close_reason is None:
            self._backlog.extend(frames)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._budgets.unsent.note(self, self.unsent_bytes())
        if self._out_bytes < unsent_bytes_max:
            self._writable.set()
        self._schedule_pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self.close_reason = self.close_reason or (f"lost: {exc!r}" if exc else "closed by the peer")
        self._backlog.clear()
        self._out.clear()
        self._writable.set()
        self._budget.forget(self._schedule_pump)
        if not self._watch.has_greeted:
            self._note_fault()
        self._watch.lost()
        self._budgets.unsent.note(self, 0)
        self._budgets.writers.leave(self.peer_host, self._appends.writer_count)
        self._appends.close()
        for task in (*self._reads, *self._until_lost):
            task.cancel()
        if self._transient_segments:
            self.cleanup = self._spawn(self._delete_transient_segments(), "delete-transient")
        self._on_lost(self)
        self._release()

    def _release(self) -> None:
        """Let go of all that knows this connection, so that it is freed once its last request has ended."""
        del self._appends, self._watch
        self._transport = None
        self.on_probation = None
        self.cleanup = None

    # ---- what the processors see -------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Queue a reply; it leaves, with all others of this loop turn, at the end of the turn."""
        self._send_parts(codec.encode_parts(command))

    def close(self, reason: str) -> None:
        """Send the replies queued so far, then close. What else the peer sent is dropped."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._backlog.clear()
        self._stop_reading()
        if self._transport is not None and not self._is_lost:
            self._flush()
            self._transport.close()
            self.spawn_until_lost(self._cut_after_linger(), "linger")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Serve a request as a task of its own; an error that nobody foresaw costs the peer its connection."""
        self._requests_in_flight += 1
        self._tasks_begun += 1
        self._spawn(self._guarded(work), name).add_done_callback(self._request_done)

    def in_flight_changed(self, bytes_delta: int, appends_delta: int) -> None:
        self._bytes_in_flight += bytes_delta
        self._appends_in_flight += appends_delta
        self._budget.change(bytes_delta, appends_delta)
        if bytes_delta < 0 or appends_delta < 0:
            self._schedule_pump()

    def block_is_open(self, size: int) -> None:
        """Note the bytes of the append block that waits for its end."""
        self._watch.block_is_open(size)

    def refused(self, requests: int = 1) -> None:
        """Note that requests were refused, so that a peer that goes on like that is read less."""
        self._hold_back(self._budgets.refusals.note(self.peer_host, requests))

    def _note_fault(self) -> None:
        """Note that the peer did what costs it the connection, and will perhaps open another one for."""
        self._budgets.refusals.note(self.peer_host, connection_refusals)

    def enter_writer(self) -> str:
        return self._budgets.writers.enter(self.peer_host)

    def leave_writer(self) -> None:
        self._budgets.writers.leave(self.peer_host)

    def spawn_until_lost(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._is_lost:  # A request that was under way then asks for it.
            work.close()
            return
        task = self._spawn(work, name)
        self._until_lost.add(task)
        task.add_done_callback(self._until_lost.discard)

    def stop(self, reason: str) -> None:
        """Close because the server stops: whatever is cleaned up afterwards gets one attempt."""
        self._cleanup_attempts = 1
        self.close(reason)

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, reason: str, request_id: int = 0) -> None:
        """Tell the peer why it is not served, and close."""
        self.send(ErrorMessage(request_id, "", reason, THROTTLED))
        self.close(reason)

    def cut(self, reason: str) -> None:
        """Cut the connection now, for this reason; replies that are not sent are lost."""
        self.close_reason = self.close_reason or reason
        self._backlog.clear()
        self.abort()

    @property
    def reading_is_paused(self) -> bool:
        return self._read_paused

    def unsent_bytes(self) -> int:
        """Reply bytes that the peer has not taken at this moment."""
        return self._out_bytes + self._buffered_bytes()

    def taken_bytes(self) -> int:
        """Reply bytes that the peer, or the kernel for it, has taken. Over TLS also what waits below it: the event
        loop does not tell how much that is."""
        return self._written_bytes - self._buffered_bytes()

    def _buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # ---- probation ---------------------------------------------------------------------------------------------------

    def _decide_probation(self, frames: Sequence[Frame]) -> None:
        decide = self.on_probation
        for type_code, payload in frames:
            if decide is None or type_code in (Hello.type_code, KeepAlive.type_code):
                continue
            try:
                command = codec.decode(type_code, payload, request_items_max)
            except (TooManyItems, WireDecodeError) as error:
                self.close(str(error))
                return
            self.on_probation = None
            reason = decide(command)
            if reason:
                self.refuse(reason, getattr(command, "request_id", 0))
            return

    # ---- frames in ---------------------------------------------------------------------------------------------------

    @property
    def _is_stuffed(self) -> bool:
        """Whether nothing more of this peer can be handled: it does not take replies, waits for too many, or too much
        of its host was refused."""
        return (
            self._write_paused
            or self._is_held_back
            or self._out_bytes >= unsent_bytes_max
            or self._requests_in_flight >= requests_in_flight_max
            or self._request_bytes >= bytes_in_flight_max
        )

    def _must_wait(self, type_code: int, payload: memoryview) -> bool:
        """Whether a frame brings bytes that cannot be taken now. Readers are never held up by that."""
        if type_code not in _STORING:
            return False
        if (
            self._bytes_in_flight >= bytes_in_flight_max
            or self._appends_in_flight >= appends_in_flight_max
            or self._budget.is_full
        ):
            return True
        return not self._back_pressure.is_open and not self._is_of_controller(type_code, payload)

    def _is_of_controller(self, type_code: int, payload: memoryview) -> bool:
        """Whether a frame updates a controller's table, and comes from one as far as that can be known."""
        if not _is_system_update(type_code, payload):
            return False
        return not self._tokens.is_on or self._tokens.is_internal(_token_of_update(payload))

    def _pump(self) -> None:
        """Handle frames until all are done or something blocks; then stop or resume reading accordingly."""
        backlog = self._backlog
        if not backlog and self._parser.has_more and self.close_reason is None:
            frames = self._parser.more()
            self._take(frames)
            self._watch.received(len(frames))
        turn_end = len(backlog) - frames_per_turn_max
        tasks_end = self._tasks_begun + requests_per_turn_max
        while backlog and self.close_reason is None:
            if self._is_stuffed or self._must_wait(*backlog[0]):
                self._wait_until_unblocked()
                return
            bucket = self._bucket_of(*backlog[0]) if self._quotas.inward else None
            if bucket is not None and not (bucket.has_room if bucket is self._turn else bucket.is_open):
                self._wait_for_turn(bucket)
                return
            if len(backlog) == turn_end or self._tasks_begun >= tasks_end:
                self._stop_reading()
                self._schedule_pump()
                return
            type_code, payload = backlog.popleft()
            if bucket is not None:
                bucket.take(len(payload))
            self._handle(type_code, payload)
        if self.close_reason is not None:
            return
        if self._parser.failure is not None:
            self._note_fault()
            # Any answer in plain makes a handshake fail at once; other peers get none, as from Pravega.
            end = self.refuse if self._parser.begins_tls else self.close
            end(str(self._parser.failure))
        elif self._is_stuffed:
            self._wait_until_unblocked()
        elif self._parser.has_more:
            self._stop_reading()
            self._schedule_pump()
        elif self._read_paused and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    def _wait_until_unblocked(self) -> None:
        self._stop_reading()
        if self._budget.is_full:
            self._budget.wake_when_open(self._schedule_pump)
        if not self._back_pressure.is_open and not self._waits_for_gate:
            self._waits_for_gate = True
            self.spawn_until_lost(self._wait_for_gate(), "back-pressure")

    def _hold_back(self, pause_s: float) -> None:
        if pause_s > 0 and not self._is_held_back:
            self._is_held_back = True
            self._budgets.refusals.held_back_total += 1
            self.spawn_until_lost(self._go_on_after(pause_s), "refusals")

    async def _go_on_after(self, pause_s: float) -> None:
        await self._clock.sleep(pause_s)
        self._is_held_back = False
        self._pump()

    async def _wait_for_gate(self) -> None:
        await self._back_pressure.wait_open()
        self._waits_for_gate = False
        self._pump()

    def _bucket_of(self, type_code: int, payload: memoryview) -> ByteBucket | None:
        if type_code not in _STORING:
            return None
        return bucket_of_frame(self._quotas.inward, type_code, payload, self._appends.limited_segment_of)

    def _wait_for_turn(self, bucket: ByteBucket) -> None:
        """Read nothing until the next frame may spend bytes of its scope, which others may be in line for, too."""
        self._stop_reading()
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self.spawn_until_lost(self._pump_in_turn(bucket), "quota")

    async def _pump_in_turn(self, bucket: ByteBucket) -> None:
        async with bucket.turn():
            self._waits_for_turn = False
            self._turn = bucket
            try:
                self._pump()
            finally:
                self._turn = None

    def _stop_reading(self) -> None:
        if not self._read_paused and self._transport is not None and not self._is_lost:
            self._read_paused = True
            self._transport.pause_reading()

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled and self.close_reason is None and (self._read_paused or self._backlog):
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled_pump)

    def _run_scheduled_pump(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _handle(self, type_code: int, payload: memoryview) -> None:
        try:
            command = codec.decode(type_code, payload, request_items_max)
            if type(command) in APPEND_COMMANDS:
                self._appends.accept(command)
            elif type(command) is ReadSegment:
                self._start_read(command)
            elif isinstance(command, KeepAlive):
                self.send(command)
            elif isinstance(command, Hello):
                self._greet(command)
            elif isinstance(command, CreateTransientSegment):
                self._start_transient(command)
            elif self._requests.serves(command):
                self._start_request(command, len(payload))
            else:
                raise WireProtocolError(COMMANDS[type_code].__name__, "not a request that this port serves")
        except TooManyItems as error:
            self.send(ErrorMessage(error.request_id, error.segment, str(error), ILLEGAL_ARGUMENT))
            self.refused()
        except (WireDecodeError, WireProtocolError) as error:
            self._note_fault()
            self.close(str(error))
        except Exception as error:
            self._unforeseen(error)

    def _unforeseen(self, error: Exception) -> None:
        _log.error("request failed unforeseen", peer=self.peer_name, exc_info=error)
        self.close(f"internal error: {error!r}")

    def _greet(self, hello: Hello) -> None:
        self._watch.greeted()
        # Only to a peer that asked for extensions: others get the Hello of a plain Pravega.
        extensions = versions.EXTENSIONS & hello.extensions
        self.send(Hello(versions.WIRE_VERSION, versions.OLDEST_COMPATIBLE_VERSION, extensions))
        if not versions.is_compatible(hello.high_version, hello.low_version):
            self.close(f"peer speaks versions {hello.low_version} to {hello.high_version} only")

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CloseConnection as error:
            if error.is_of_peer:
                self._note_fault()
            self.close(str(error))
        except Exception as error:
            self._unforeseen(error)

    def _request_done(self, _: asyncio.Task[Any]) -> None:
        self._requests_in_flight -= 1
        self._schedule_pump()

    def _start_request(self, command: Command, payload_bytes: int) -> None:
        self._request_bytes += payload_bytes
        self.in_flight_changed(payload_bytes, 0)
        self.spawn(self._serve(command, payload_bytes), type(command).__name__)

    async def _serve(self, command: Command, payload_bytes: int) -> None:
        try:
            reply = await self._first_answer(command, payload_bytes)
            owed = owed_for(self._quotas.outward, command, reply) if self._quotas.outward else {}
            if not self._is_lost and not paid(owed):
                # Not kept while it waits for its scope's turn: it is made again.
                del reply
                await self._pay_in_turn(owed)
                reply = await self._requests.answer(command)
            if self._has_large_answer(command) and (not self._writable.is_set() or self._budgets.unsent.is_full):
                # As with reads of segments: answers are not kept for a slow peer, they are made again.
                del reply
                await self._reply_when_writable(command)
            else:
                self._reply_to(command, reply)
        finally:
            self._request_bytes -= payload_bytes

    async def _first_answer(self, command: Command, payload_bytes: int) -> Command:
        """The answer of the store; with it the request ends to be on its way there."""
        began_s = self._clock.monotonic_s()
        try:
            reply = await self._requests.answer(command)
        finally:
            self.in_flight_changed(-payload_bytes, 0)
        self._times.note_request(command, self._clock.monotonic_s() - began_s)
        return reply

    async def _pay_in_turn(self, owed: Owed) -> None:
        """Wait for the turn of each scope; cancelled when the connection is lost, as nothing is under way meanwhile."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._until_lost.add(task)
        try:
            await pay_in_turn(owed)
        finally:
            self._until_lost.discard(task)

    async def _reply_when_writable(self, command: Command) -> None:
        """Make the answer again when there is room for it, one at a time; none if the connection is lost by then."""
        async with self._slow_reads:
            if not self._is_lost:
                await self._budgets.unsent.wait_room()
                await self._writable.wait()
            if not self._is_lost:
                self._reply_to(command, await self._requests.answer(command))

    @staticmethod
    def _has_large_answer(command: Command) -> bool:
        if isinstance(command, RequestBatch):
            return begins_with_read(command.requests)
        return isinstance(command, TABLE_READS)

    def _reply_to(self, request: Any, reply: Command) -> None:
        if requests := refused_in(reply):
            # Not what a controller hands on: all its callers would wait for those who ask for what cannot be.
            if not self._tokens.is_internal(getattr(request, "token", "")):
                self.refused(requests)
        elif isinstance(reply, SegmentsMerged):  # Nothing is left of it to delete.
            self._transient_segments.discard(reply.source)
        try:
            parts = codec.encode_parts(reply)
        except InvalidArgument as error:
            # Every request is bounded so that this cannot be; if it is, the peer gets an answer all the same.
            _log.error("reply cannot be sent", peer=self.peer_name, exc_info=error)
            parts = codec.encode_parts(ErrorMessage(request.request_id, "", str(error), ILLEGAL_ARGUMENT))
        self._send_parts(parts)

    def _start_transient(self, command: CreateTransientSegment) -> None:
        if len(self._transient_segments) >= transient_segments_max:
            raise WireProtocolError(
                "CreateTransientSegment",
                f"more than {transient_segments_max} transient segments on a connection at a time",
            )
        # Registered before it exists: if the connection is lost while it is made, it is deleted all the same.
        try:
            segment = self._requests.transient_name(command)
        except InvalidArgument as error:
            self.send(ErrorMessage(command.request_id, "", str(error), ILLEGAL_ARGUMENT))
            self.refused()
            return
        self._transient_segments.add(segment)
        self.spawn(self._serve_transient(command, segment), "CreateTransientSegment")

    async def _serve_transient(self, command: CreateTransientSegment, segment: str) -> None:
        began_s = self._clock.monotonic_s()
        self._reply_to(command, await self._requests.create_transient(command, segment))
        self._times.note_request(command, self._clock.monotonic_s() - began_s)

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _start_read(self, request: ReadSegment) -> None:
        if len(self._reads) >= reads_in_flight_max:
            raise WireProtocolError("ReadSegment", f"more than {reads_in_flight_max} reads are waiting")
        budgets = self._budgets
        if budgets.reads >= budgets.reads_max:
            budgets.refused_reads += 1
            reason = f"{budgets.reads_max} reads are waiting at this store, its limit: try again later"
            self.send(ErrorMessage(request.request_id, request.segment, reason, THROTTLED))
            return
        budgets.reads += 1
        task = self._spawn(self._guarded(self._serve_read(request)), "ReadSegment")
        self._reads.add(task)
        task.add_done_callback(self._read_done)

    def _read_done(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        self._budgets.reads -= 1

    async def _serve_read(self, request: ReadSegment) -> None:
        began_s = self._clock.monotonic_s()
        result = await self._requests.read(request)
        if isinstance(result, ReadResult) and not result.has_waited:
            self._times.reads.note(self._clock.monotonic_s() - began_s)
        if self._quotas.outward and isinstance(result, ReadResult):
            bucket, length = self._quotas.outward.of(request.segment), result.length
            if bucket is not None and self._tokens.counts_for_quota(request) and not paid({bucket: length}):
                # Bytes are not kept while they wait for their scope's turn, either.
                del result
                result = await self._read_in_turn(request, bucket, length)
        if self._writable.is_set() and not self._budgets.unsent.is_full:
            self._send_read(request, result)
            return
        # Bytes are not kept for a slow peer: they are read again, for one read at a time, when there is room.
        del result
        async with self._slow_reads:
            await self._budgets.unsent.wait_room()
            await self._writable.wait()
            self._send_read(request, await self._requests.read(request))

    async def _read_in_turn(self, request: ReadSegment, bucket: ByteBucket, length: int) -> ReadResult | Command:
        if bucket.waiting >= quota_reads_max:
            self._budgets.refused_reads += 1
            scope = request.segment.partition("/")[0]
            reason = f"{bucket.waiting} reads wait for the quota of scope {scope}, their limit: try again later"
            return ErrorMessage(request.request_id, request.segment, reason, THROTTLED)
        await pay_in_turn({bucket: length})
        result = await self._requests.read(request)
        bucket.take((result.length if isinstance(result, ReadResult) else 0) - length)
        return result

    def _send_read(self, request: ReadSegment, result: ReadResult | Command) -> None:
        if not isinstance(result, ReadResult):
            self._reply_to(request, result)
            return
        self._times.note_sent(request.segment, result.length)
        self._send_parts(
            codec.segment_read_parts(
                request.segment,
                request.offset,
                at_tail=result.at_tail,
                end_of_segment=result.end_of_segment,
                data=result.data,
                request_id=request.request_id,
            )
        )

    # ---- replies out -------------------------------------------------------------------------------------------------

    def _send_parts(self, parts: list[bytes | memoryview]) -> None:
        if self._is_lost or self.close_reason is not None:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes >= unsent_bytes_max:
            self._writable.clear()

    def _flush(self) -> None:
        parts, self._out = self._out, []
        had = self._out_bytes
        self._out_bytes = 0
        if not parts or self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(in_records(parts) if self._speaks_tls else parts)
        self._written_bytes += had
        self._budgets.unsent.note(self, self._buffered_bytes())
        if not self._write_paused and had >= unsent_bytes_max:
            self._writable.set()
            self._schedule_pump()

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def _cut_after_linger(self) -> None:
        await self._clock.sleep(close_linger_s)
        self.abort()

    async def _delete_transient_segments(self) -> None:
        for segment in sorted(self._transient_segments):
            for _ in range(self._cleanup_attempts):
                if await self._requests.delete_transient(segment):
                    break
                if self._cleanup_attempts > 1:
                    await self._clock.sleep(transient_delete_pause_s)
            else:
                _log.warning("transient segment left behind", segment=segment)
