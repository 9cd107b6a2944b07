"""Queues the replies of one connection: those of a turn of the event loop leave together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from segment_service.host.held_bytes import Holder, UnsentReplies
from segment_service.host.tls_records import in_records

unsent_bytes_max: Final = 4 * 1024 * 1024
"""Reply bytes that a peer has not taken yet, above which its requests wait."""


class Sender(Holder, Protocol):
    """The connection, as the queue sees it."""

    def replies_have_room(self) -> None:
        """Go on with the requests that waited for the peer to take replies."""
        ...


class ReplyQueue:
    """The replies of one connection that its peer has not taken."""

    def __init__(self, unsent: UnsentReplies, transport: asyncio.Transport, sender: Sender) -> None:
        self._unsent = unsent
        self._transport: asyncio.Transport | None = transport
        self._sender = sender
        """Both until ``lost``, as they know the queue."""
        self._speaks_tls = transport.get_extra_info("sslcontext") is not None
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes = 0
        self._written_bytes = 0
        """Reply bytes that the transport was given."""
        self._write_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._one_at_a_time = asyncio.Lock()
        self._has_ended = False
        self._is_lost = False
        transport.set_write_buffer_limits(high=unsent_bytes_max)

    def send(self, parts: list[bytes | memoryview]) -> None:
        """Queue a reply; it leaves, with all others of this loop turn, at the end of the turn. None does once the
        connection ends."""
        if self._has_ended:
            return
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts += parts
        self._parts_bytes += sum(map(len, parts))
        if self._parts_bytes >= unsent_bytes_max:
            self._writable.clear()

    @property
    def is_stuffed(self) -> bool:
        """Whether the peer is to take replies before more is done for it."""
        return self._write_paused or self._parts_bytes >= unsent_bytes_max

    @property
    def has_room(self) -> bool:
        """Whether a large reply may be sent now."""
        return self._writable.is_set() and not self._unsent.is_full

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Wait until a large reply may be made and sent, one at a time, or the connection is lost."""
        async with self._one_at_a_time:
            if not self._is_lost:
                await self._unsent.wait_room()
                await self._writable.wait()
            yield

    def pause(self) -> None:
        """Note that the transport takes no more for now."""
        self._write_paused = True
        self._writable.clear()

    def resume(self) -> None:
        self._write_paused = False
        self._unsent.note(self._sender, self.unsent_bytes())
        if self._parts_bytes < unsent_bytes_max:
            self._writable.set()
        self._sender.replies_have_room()

    def end(self) -> None:
        """Hand what was queued to the transport, and queue nothing more."""
        self._has_ended = True
        self._flush()

    def drop(self) -> None:
        """Drop what was queued, and queue nothing more."""
        self._has_ended = True
        self._parts, self._parts_bytes = [], 0

    def lost(self) -> None:
        """Drop all, and let go of the connection."""
        self.drop()
        self._is_lost = True
        self._writable.set()
        self._unsent.note(self._sender, 0)
        self._transport = None
        del self._sender

    def unsent_bytes(self) -> int:
        """Reply bytes that the peer has not taken at this moment."""
        return self._parts_bytes + self._buffered_bytes()

    def taken_bytes(self) -> int:
        """Reply bytes that the peer, or the kernel for it, has taken. Over TLS also what waits below it: the event
        loop does not tell how much that is."""
        return self._written_bytes - self._buffered_bytes()

    def _buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        size, self._parts_bytes = self._parts_bytes, 0
        if not parts or self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(in_records(parts) if self._speaks_tls else parts)
        self._written_bytes += size
        self._unsent.note(self._sender, self._buffered_bytes())
        if not self._write_paused and size >= unsent_bytes_max:
            self._writable.set()
            self._sender.replies_have_room()
