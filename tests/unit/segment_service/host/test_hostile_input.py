"""Ten thousand and more mutated frames: each costs at most its own connection, and an honest client notices nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    ReadSegment,
    SegmentRead,
    SetupAppend,
)
from segment_service.host.connection import Connection
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.recordings import all_wire_frames
from tests.support.wire_client import WireClient

SEED = 20_251_120
FRAMES_TOTAL = 8_000
FRAMES_TOTAL_LONG = 24_000
FRAMES_PER_CONNECTION_MAX = 4
ATTACKERS = 4
HONEST = "honest/stream/0.#epoch.0"
WRITER = b"h" * 16


@pytest.fixture
def refusals_per_peer_per_s() -> int:
    """Refused hosts are not held back: that would take most of the time."""
    return 1_000_000


def seeds() -> list[bytes]:
    """Every distinct recorded request, whole, as a frame."""
    frames = {
        codec.frame_header(frame.type_code, len(frame.payload)) + frame.payload
        for frame in all_wire_frames()
        if frame.type_code is not None and frame.is_request
    }
    return sorted(frames)


class Mutator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seeds = seeds()
        self.kinds = [self.flip, self.cut, self.lie, self.splice, self.retype, self.extreme, self.noise, self.keep]

    def frame(self) -> bytes:
        return self.rng.choice(self.kinds)(bytearray(self.rng.choice(self.seeds)))

    def flip(self, frame: bytearray) -> bytes:
        for _ in range(self.rng.randint(1, 8)):
            frame[self.rng.randrange(8, len(frame)) if len(frame) > 8 else 0] ^= 1 << self.rng.randrange(8)
        return bytes(frame)

    def cut(self, frame: bytearray) -> bytes:
        payload = frame[8 : self.rng.randint(8, len(frame))]
        return bytes(frame[:4]) + len(payload).to_bytes(4, "big") + bytes(payload)

    def lie(self, frame: bytearray) -> bytes:
        length = self.rng.choice([-1, -(2**31), 2**31 - 1, 0xFFFFFF, 0xFFFFF8, 0, len(frame) * 2])
        return bytes(frame[:4]) + length.to_bytes(4, "big", signed=True) + bytes(frame[8:])

    def splice(self, frame: bytearray) -> bytes:
        other = self.rng.choice(self.seeds)
        payload = frame[8 : self.rng.randint(8, len(frame))] + other[self.rng.randint(8, len(other)) :]
        return bytes(frame[:4]) + len(payload).to_bytes(4, "big") + bytes(payload)

    def retype(self, frame: bytearray) -> bytes:
        type_code = self.rng.choice([self.rng.randint(-130, 110), self.rng.randint(-(2**31), 2**31 - 1)])
        return type_code.to_bytes(4, "big", signed=True) + bytes(frame[4:])

    def extreme(self, frame: bytearray) -> bytes:
        if len(frame) > 16:
            value = self.rng.choice([0, -1, -(2**31), 2**31 - 1]).to_bytes(4, "big", signed=True)
            start = self.rng.randrange(8, len(frame) - 4)
            frame[start : start + 4] = value
        return bytes(frame)

    def noise(self, frame: bytearray) -> bytes:
        payload = self.rng.randbytes(self.rng.randrange(200))
        return bytes(frame[:4]) + len(payload).to_bytes(4, "big") + payload

    def keep(self, frame: bytearray) -> bytes:
        return bytes(frame)


async def attack(port: int, mutator: Mutator, budget: list[int]) -> None:
    while budget[0] > 0:
        count = min(mutator.rng.randint(1, FRAMES_PER_CONNECTION_MAX), budget[0])
        budget[0] -= count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"".join(mutator.frame() for _ in range(count)))
            writer.write_eof()
            async with asyncio.timeout(20):
                while await reader.read(1 << 16):
                    pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            writer.close()


async def work_honestly(port: int, stop: asyncio.Event) -> int:
    client = await WireClient.connect(port)
    await client.call(SetupAppend(1, WRITER, HONEST), AppendSetup)
    number = 0
    while not stop.is_set():
        number += 1
        data = number.to_bytes(8, "big")
        ack = await client.call(AppendBlockEnd(WRITER, 8, data, 1, number, number), DataAppended)
        assert (ack.event_number, ack.current_segment_write_offset) == (number, number * 8)
        read = await client.call(ReadSegment(HONEST, (number - 1) * 8, 8, "", number), SegmentRead)
        assert read.data == data
        await asyncio.sleep(0.001)
    await client.close()
    return number


async def test_mutated_frames(
    server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch, all_cases: bool
) -> None:
    frames = FRAMES_TOTAL_LONG if all_cases else FRAMES_TOTAL
    handled = 0
    handle = Connection.handle  # Frames are counted where they are handled, and closes where they are noted.

    def counting(connection: Connection, type_code: int, payload: memoryview) -> None:
        nonlocal handled
        handled += 1
        handle(connection, type_code, payload)

    monkeypatch.setattr(Connection, "handle", counting)
    reasons: Counter[str] = Counter()
    connections = 0
    lost = server._connection_lost

    def connection_lost(connection: object) -> None:
        nonlocal connections
        lost(connection)  # type: ignore[arg-type]
        connections += 1
        reasons[str(server.recent_closes[-1][1]).split(":")[0]] += 1

    server._connection_lost = connection_lost  # type: ignore[method-assign]
    await store.create_segment(HONEST)
    stop = asyncio.Event()
    honest = asyncio.create_task(work_honestly(server.port, stop))
    rng = random.Random(SEED)
    budget = [frames]
    await asyncio.gather(*(attack(server.port, Mutator(rng), budget) for _ in range(ATTACKERS)))
    stop.set()
    rounds = await honest
    assert rounds > 50
    assert handled - 2 * rounds > frames * 0.4
    assert server.is_running
    await eventually(lambda: server.connection_count == 0)
    assert connections > frames // FRAMES_PER_CONNECTION_MAX
    assert all(reasons), "every connection ends with a reason"
    assert not any("internal error" in reason or "unforeseen" in reason for reason in reasons), reasons
    assert len(reasons) > 20, "the frames reached many different checks"
    assert (await store.get_info(HONEST)).length == rounds * 8
