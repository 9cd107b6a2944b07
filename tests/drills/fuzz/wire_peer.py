"""Sends mutated frames to a segment store over several connections, and counts what came of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from pravega_common.wire import codec
from pravega_common.wire.commands import COMMANDS, Hello, KeepAlive
from pravega_common.wire.framing import FrameParser
from tests.drills.fuzz.frames import Batch, FrameMaker
from tests.drills.fuzz.values import Target

connections_per_peer: Final = 6
answer_time_max_s: Final = 60.0
"""Time in which a store must have handled a batch or ended the connection."""
batches_per_connection_max: Final = 40
reasons_max: Final = 50
"""Different reasons that a peer keeps."""
_KEEP_ALIVE: Final = codec.encode(KeepAlive())
_HELLO: Final = codec.encode(Hello(17, 5))


@dataclass
class PeerCounts:
    """``handled``: what a server surely took note of: it answered a request behind it, or ended the connection at it.
    ``cut_off``: sent behind something that ended the connection. ``stalled``: waits without an answer."""

    handled: int = 0
    cut_off: int = 0
    connections: int = 0
    stalled: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    """Of requests that failed on the server's side: what was asked, and what it said; at most ``reasons_max``."""

    def note(self, answer: str, count: int = 1) -> None:
        self.answers[answer] = self.answers.get(answer, 0) + count

    def note_failure(self, reason: str, count: int = 1) -> None:
        if reason in self.reasons or len(self.reasons) < reasons_max:
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def add(self, other: PeerCounts) -> None:
        self.handled += other.handled
        self.cut_off += other.cut_off
        self.connections += other.connections
        self.stalled += other.stalled
        for answer, count in other.answers.items():
            self.note(answer, count)
        for reason, count in other.reasons.items():
            self.note_failure(reason, count)


class _Socket:
    """One connection to a store."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.parser = FrameParser()
        self.batches = 0

    async def echoes(self, count: int, counts: PeerCounts) -> bool:
        """Read until the store sent back so many KeepAlives; False if it ended the connection before."""
        while count:
            data = await self.reader.read(1 << 18)
            if not data:
                return False
            for type_code, _ in self.parser.feed(data):
                counts.note(COMMANDS[type_code].__name__ if type_code in COMMANDS else str(type_code))
                count -= type_code == KeepAlive.type_code and count > 0
        return True


class WirePeer:
    """One peer of a store. ``seed`` decides what each of its connections sends."""

    def __init__(self, seed: str, port: int, target: Target) -> None:
        self._seed = seed
        self._port = port
        self._target = target
        self.counts = PeerCounts()
        self._limit = 0

    async def run(self, frames: int) -> PeerCounts:
        """Send until so many frames were handled."""
        self._limit = frames
        await asyncio.gather(*(self._worker(number) for number in range(connections_per_peer)))
        return self.counts

    async def _worker(self, number: int) -> None:
        maker = FrameMaker(f"{self._seed}-{number}", self._target)
        socket: _Socket | None = None
        while self.counts.handled < self._limit:
            batch = maker.batch()
            try:
                async with asyncio.timeout(answer_time_max_s):
                    socket = await self._send(socket or await self._connected(), batch)
            except TimeoutError:
                self.counts.stalled += 1
                socket = None
            except OSError:
                self._note_cut(batch)
                socket = None
        if socket is not None:
            socket.writer.close()

    async def _connected(self) -> _Socket:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        writer.write(_HELLO)
        self.counts.connections += 1
        return _Socket(reader, writer)

    async def _send(self, socket: _Socket, batch: Batch) -> _Socket | None:
        """Send a batch; returns the connection if it can be used again."""
        socket.writer.write(b"".join((*batch.frames, _KEEP_ALIVE, batch.last)))
        socket.batches += 1
        if not await socket.echoes(batch.keep_alives + 1, self.counts):
            self._note_cut(batch)
            socket.writer.close()
            return None
        self.counts.handled += len(batch.frames) + bool(batch.last)
        if not batch.last and socket.batches < batches_per_connection_max:
            return socket
        # A half frame is waited for, so this side ends the connection, too.
        socket.writer.write_eof()
        while await socket.reader.read(1 << 18):
            pass
        socket.writer.close()
        return None

    def _note_cut(self, batch: Batch) -> None:
        self.counts.handled += 1
        self.counts.cut_off += max(len(batch.frames) - 1, 0)
