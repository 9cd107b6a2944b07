"""Appends traffic reports to the controllers' request stream, on whatever store owns its segments.

A store knows no controller, and needs none for this: the stream has a fixed number of segments, and the control plane
oracle says who owns their containers.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from pravega_common.errors import (
    ContainerNotHosted,
    FailedError,
    PravegaError,
    SegmentNotFound,
    SegmentSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.hashing import container_of_segment
from pravega_common.model.auto_scale_event import AutoScaleEvent
from pravega_common.runtime.client_tls import SYSTEM_TRUST, ClientTls, handshake_time_max_s
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_common.wire import commands as wire
from pravega_common.wire.codec import decode, encode
from pravega_common.wire.errors import WireDecodeError
from pravega_common.wire.framing import FrameParser
from pravega_common.wire.versions import OLDEST_COMPATIBLE_VERSION, WIRE_VERSION

_EVENT_HEADER = struct.Struct(">ii")
_receive_bytes: Final = 16 * 1024
R = TypeVar("R", bound=wire.Command)


class RequestStream(Protocol):
    async def append(self, segment: str, events: Sequence[AutoScaleEvent]) -> None:
        """Append the events to a segment of the request stream, all or none, and return when they are durable.

        ``SegmentNotFound`` before the controllers made the stream, ``Unavailable`` while nobody serves it,
        ``UnknownOutcome`` if the answer was lost.
        """
        ...


class WireRequestStream:
    """``RequestStream`` over the wire protocol: one connection an append, since reports are rare.

    All reports of a store are one writer, which is known by the store's name: the attributes of the segment do not
    grow with restarts. ``tls``: how stores that speak TLS are verified.
    """

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        container_count: int,
        store_id: str,
        tls: ClientTls = SYSTEM_TRUST,
        tokens: DelegationTokens | None = None,
    ) -> None:
        """``tokens``: those of the cluster, of which this store shows its own; ``None`` in one without keys."""
        self._cpo = cpo
        self._tls = tls
        self._tokens = tokens
        self._container_count = container_count
        self._writer_id = hashlib.blake2b(f"traffic/{store_id}".encode(), digest_size=16).digest()

    async def append(self, segment: str, events: Sequence[AutoScaleEvent]) -> None:
        owner = await self._owner_of(segment)
        try:
            reader, writer = await self._open(owner)
        except OSError as error:
            raise Unavailable(f"no connection to the segment store at {owner.host}:{owner.port}: {error}") from error
        try:
            token = "" if self._tokens is None else self._tokens.internal()
            await _Conversation(reader, writer, segment, self._writer_id, token).append(events)
        except (OSError, WireDecodeError) as error:
            raise UnknownOutcome(f"{segment} at {owner.host}:{owner.port}: {error}") from error
        finally:
            writer.close()

    async def _open(self, owner: Member) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not owner.tls:
            return await asyncio.open_connection(owner.host, owner.port)
        return await asyncio.open_connection(
            owner.host, owner.port, ssl=self._tls.context, ssl_handshake_timeout=handshake_time_max_s
        )

    async def _owner_of(self, segment: str) -> Member:
        container = container_of_segment(segment, self._container_count)
        owner = (await self._cpo.get_assignment()).owners.get(container)
        payload = None if owner is None else (await self._cpo.members(SEGMENT_STORE_KIND)).get(owner)
        if payload is None:
            raise Unavailable(f"no segment store owns container {container} of {segment} now")
        return Member.from_payload(payload)


class _Conversation:
    """One writer on one connection: set up, append, wait for the answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, segment: str, writer_id: bytes, token: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._segment = segment
        self._writer_id = writer_id
        self._token = token
        self._parser = FrameParser()
        self._replies: list[wire.Command] = []

    async def append(self, events: Sequence[AutoScaleEvent]) -> None:
        self._send(wire.Hello(WIRE_VERSION, OLDEST_COMPATIBLE_VERSION))
        self._send(wire.SetupAppend(1, self._writer_id, self._segment, self._token))
        set_up = await self._reply(wire.AppendSetup)
        number = max(set_up.last_event_number, 0) + len(events)
        block = b"".join(map(_framed, events))
        self._send(wire.AppendBlockEnd(self._writer_id, len(block), memoryview(block), len(events), number, 2))
        acknowledged = await self._reply(wire.DataAppended)
        if acknowledged.event_number != number:
            raise UnknownOutcome(f"{self._segment}: event {acknowledged.event_number} acknowledged instead of {number}")

    def _send(self, command: wire.Command) -> None:
        self._writer.write(encode(command))

    async def _reply(self, expected: type[R]) -> R:
        while True:
            while not self._replies:
                received = await self._reader.read(_receive_bytes)
                if not received:
                    raise UnknownOutcome(f"{self._segment}: the store closed the connection")
                self._replies.extend(decode(*frame) for frame in self._parser.feed(received))
            reply = self._replies.pop(0)
            if isinstance(reply, expected):
                return reply
            if not isinstance(reply, wire.Hello | wire.KeepAlive):
                raise _refusal(reply, self._segment)


def _framed(event: AutoScaleEvent) -> bytes:
    """The event as it is stored (docs/wire-protocol.md 5.1)."""
    data = event.to_bytes()
    return _EVENT_HEADER.pack(0, len(data)) + data


def _refusal(reply: wire.Command, segment: str) -> PravegaError:
    match reply:
        case wire.NoSuchSegment():
            return SegmentNotFound(segment)
        case wire.SegmentIsSealed():
            return SegmentSealed(segment)
        case wire.WrongHost():
            return ContainerNotHosted(-1, f"{segment}: the store does not own its container")
        case wire.AuthTokenCheckFailed():
            return Unavailable(
                f"{segment}: the store does not accept this store's token: have they the same cluster keys?"
            )
        case wire.ErrorMessage():
            return Unavailable(f"{segment}: {reply.message}")
    return FailedError(f"{segment}: the store answered {type(reply).__name__}")
