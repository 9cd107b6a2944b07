"""Serves one connection: frames in, commands to what serves them, replies out.

The transport fills the frame parser's buffer, commands are handled in the call that received them (appends) or as one
task each (everything else), and replies leave together once per loop turn. ``frame_pump.py`` says when the connection
is read, ``reply_queue.py`` sends what is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import structlog

from pravega_common.model.table_limits import update_entries_max
from pravega_common.wire import codec, versions
from pravega_common.wire.commands import (
    COMMANDS,
    ILLEGAL_ARGUMENT,
    THROTTLED,
    Command,
    CreateTransientSegment,
    ErrorMessage,
    Hello,
    KeepAlive,
    ReadSegment,
)
from pravega_common.wire.errors import TooManyItems, WireDecodeError, WireProtocolError
from pravega_common.wire.framing import Frame, FrameParser
from segment_service.host.append_processor import APPEND_COMMANDS, AppendProcessor
from segment_service.host.connection_load import ConnectionLoad
from segment_service.host.connection_reads import ConnectionReads
from segment_service.host.connection_requests import ConnectionRequests
from segment_service.host.frame_pump import FramePump, frames_per_turn_max
from segment_service.host.peer_watch import PeerWatch
from segment_service.host.refusals import connection_refusals, new_connection_pause_max_s
from segment_service.host.reply_queue import ReplyQueue
from segment_service.host.request_batches import CloseConnection
from segment_service.host.server_parts import ServerParts
from segment_service.host.transient_segments import TransientSegments

request_items_max: Final = update_entries_max
"""Keys, entries, sources or attribute updates of one request; one with more is refused before they are decoded."""
close_linger_s: Final = 5.0
"""How long a closed connection may take to send its last replies before it is cut."""

_log = structlog.get_logger(service="wire-server")
_LOCAL_PEER: Final = "127.0.0.1"


class Connection(asyncio.BufferedProtocol):
    """The server's side of one socket."""

    def __init__(
        self, parts: ServerParts, on_made: Callable[[Connection], None], on_lost: Callable[[Connection], None]
    ) -> None:
        self.peer_name = "?"
        self.peer_host = "?"
        self.close_reason: str | None = None
        self.cleanup: asyncio.Task[Any] | None = None
        self.is_lost = False
        self.on_probation: Callable[[Command], str] | None = None
        """Decides by the first request that says anything whether the connection may stay: the reason why not, or an
        empty text. ``None`` once that is decided."""
        self._parts = parts
        self._budgets = parts.budgets
        self._on_made = on_made
        self._on_lost = on_lost
        self._parser = FrameParser(frames_max=frames_per_turn_max)
        self._load = ConnectionLoad(parts.budgets.in_flight)
        self._transient = TransientSegments(parts.requests, parts.clock)
        self._replies: ReplyQueue
        self._pump: FramePump
        """Both from ``connection_made`` on; they let go of the connection when it is lost, and know that it is."""
        self._appends: AppendProcessor
        self._requests: ConnectionRequests
        self._reads: ConnectionReads
        self._watch: PeerWatch
        """All four from ``connection_made`` until ``connection_lost``, as they know the connection: with them it would
        be a cycle of objects, which only a long look of the garbage collector frees."""
        self._transport: asyncio.Transport | None = None
        self._until_lost: set[asyncio.Task[Any]] = set()

    # ---- transport callbacks -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_name = str(peer[0]), f"{peer[0]}:{peer[1]}"
        else:
            # A Unix socket: a client of this machine, counted with those that come through the port.
            self.peer_host, self.peer_name = _LOCAL_PEER, f"{_LOCAL_PEER} (Unix socket)"
        self._make_parts(self._transport)
        self._watch.connected(transport.get_extra_info("socket"))
        self._pump.hold_back(min(self._budgets.refusals.pause_s(self.peer_host), new_connection_pause_max_s))
        self._on_made(self)

    def _make_parts(self, transport: asyncio.Transport) -> None:
        parts, merged = self._parts, self._budgets.merged_writers
        self._replies = ReplyQueue(self._budgets.unsent, transport, self)
        self._pump = FramePump(parts, self._parser, self._load, self._replies, transport, self)
        self._appends = AppendProcessor(parts.store, self, parts.tokens, parts.clock, parts.times, merged)
        self._requests = ConnectionRequests(parts, self._load, self._replies, self._transient, self)
        self._reads = ConnectionReads(parts, self._replies, self._requests, self)
        self._watch = PeerWatch(self._budgets, self._parser, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._pump.received(nbytes)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._replies.pause()

    def resume_writing(self) -> None:
        self._replies.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.close_reason = self.close_reason or (f"lost: {exc!r}" if exc else "closed by the peer")
        if not self._watch.has_greeted:
            self._note_fault()
        self._pump.lost()
        self._watch.lost()
        self._replies.lost()
        self._budgets.writers.leave(self.peer_host, self._appends.writer_count)
        self._appends.close()
        self._reads.cancel()
        for task in self._until_lost:
            task.cancel()
        if self._transient:
            self.cleanup = self._parts.spawn(self._transient.delete_all(), "delete-transient")
        self._on_lost(self)
        self._release()

    def _release(self) -> None:
        """Let go of all that knows this connection, so that it is freed once its last request has ended."""
        del self._appends, self._requests, self._reads, self._watch
        self._transport = None
        self.on_probation = None
        self.cleanup = None

    # ---- what serves the connection sees -----------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Queue a reply; it leaves, with all others of this loop turn, at the end of the turn."""
        self._replies.send(codec.encode_parts(command))

    def close(self, reason: str) -> None:
        """Send the replies queued so far, then close. What else the peer sent is dropped."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._pump.end()
        self._pump.stop_reading()
        self._replies.end()
        if self._transport is not None:
            self._transport.close()
            self.spawn_until_lost(self._cut_after_linger(), "linger")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Serve a request as a task of its own."""
        self._load.request_begins()
        self._parts.spawn(self.guarded(work), name).add_done_callback(self._request_done)

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; an error that nobody foresaw costs the peer its connection."""
        try:
            await work
        except CloseConnection as error:
            if error.is_of_peer:
                self._note_fault()
            self.close(str(error))
        except Exception as error:
            self._unforeseen(error)

    def _request_done(self, _: asyncio.Task[Any]) -> None:
        self._load.request_ends()
        self._pump.wake()

    def in_flight_changed(self, bytes_delta: int, appends_delta: int) -> None:
        self._load.change(bytes_delta, appends_delta)
        if bytes_delta < 0 or appends_delta < 0:
            self._pump.wake()

    def block_is_open(self, size: int) -> None:
        """Note the bytes of the append block that waits for its end."""
        self._watch.block_is_open(size)

    def refused(self, requests: int = 1) -> None:
        """Note that requests were refused, so that a peer that goes on like that is read less."""
        self._pump.hold_back(self._budgets.refusals.note(self.peer_host, requests))

    def _note_fault(self) -> None:
        """Note that the peer did what costs it the connection, and will perhaps open another one for."""
        self._budgets.refusals.note(self.peer_host, connection_refusals)

    def enter_writer(self) -> str:
        return self._budgets.writers.enter(self.peer_host)

    def leave_writer(self) -> None:
        self._budgets.writers.leave(self.peer_host)

    def spawn_until_lost(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task that ends with the connection at the latest."""
        if self.is_lost:  # A request that was under way then asks for it.
            work.close()
            return
        task = self._parts.spawn(work, name)
        self._until_lost.add(task)
        task.add_done_callback(self._until_lost.discard)

    @contextmanager
    def cancelled_when_lost(self) -> Iterator[None]:
        """Cancel the task that runs in the context if the connection is lost meanwhile."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._until_lost.add(task)
        try:
            yield
        finally:
            self._until_lost.discard(task)

    def replies_have_room(self) -> None:
        self._pump.wake()

    def limited_segment_of(self, writer_id: bytes) -> str:
        return self._appends.limited_segment_of(writer_id)

    @property
    def reading_is_paused(self) -> bool:
        return self._pump.reading_is_paused

    def unsent_bytes(self) -> int:
        return self._replies.unsent_bytes()

    def taken_bytes(self) -> int:
        return self._replies.taken_bytes()

    # ---- frames ------------------------------------------------------------------------------------------------------

    def frames_came(self, frames: Sequence[Frame]) -> None:
        if self.on_probation is not None and self.close_reason is None:
            self._decide_probation(frames)
        self._watch.received(len(frames))

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

    def handle(self, type_code: int, payload: memoryview) -> None:
        try:
            command = codec.decode(type_code, payload, request_items_max)
            if type(command) in APPEND_COMMANDS:
                self._appends.accept(command)
            elif type(command) is ReadSegment:
                self._reads.start(command)
            elif isinstance(command, KeepAlive):
                self.send(command)
            elif isinstance(command, Hello):
                self._greet(command)
            elif isinstance(command, CreateTransientSegment):
                self._requests.start_transient(command)
            elif self._requests.serves(command):
                self._requests.start(command, len(payload))
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

    def no_frames_follow(self) -> None:
        """End for bytes that are no frame, once all frames in front of them are handled."""
        self._note_fault()
        # Any answer in plain makes a handshake fail at once; other peers get none, as from Pravega.
        end = self.refuse if self._parser.begins_tls else self.close
        end(str(self._parser.failure))

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

    # ---- the end -----------------------------------------------------------------------------------------------------

    def refuse(self, reason: str, request_id: int = 0) -> None:
        """Tell the peer why it is not served, and close."""
        self.send(ErrorMessage(request_id, "", reason, THROTTLED))
        self.close(reason)

    def stop(self, reason: str) -> None:
        """Close because the server stops: whatever is cleaned up afterwards gets one attempt."""
        self._transient.delete_attempts_max = 1
        self.close(reason)

    def cut(self, reason: str) -> None:
        """Cut the connection now, for this reason; replies that are not sent are lost."""
        self.close_reason = self.close_reason or reason
        self._pump.end()
        self._replies.drop()
        self.abort()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    async def _cut_after_linger(self) -> None:
        await self._parts.clock.sleep(close_linger_s)
        self.abort()
