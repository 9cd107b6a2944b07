"""Writes to Tier-1 logs and checks them: acknowledged frames must be there, in order, once, unchanged."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from pravega_common.errors import PravegaError
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import DurableDataLog, LogAddress, LogEntry
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.fakes.cpo import InMemoryCPO

_HEAD = struct.Struct(">QQ")


def numbered_frame(writer: int, number: int, size: int) -> bytes:
    """A frame that can be recognised and checked; ``size`` ≥ 16 bytes."""
    body = random.Random(writer * 1_000_003 + number).randbytes(size - _HEAD.size)
    return _HEAD.pack(writer, number) + body


def frame_number(payload: memoryview) -> tuple[int, int]:
    """Writer and number of a frame, checked against its content."""
    writer, number = _HEAD.unpack_from(payload)
    assert bytes(payload) == numbered_frame(writer, number, len(payload)), f"frame {writer}/{number} has other bytes"
    return writer, number


@dataclass
class WriterHistory:
    writer: int
    sent: int = 0
    acked: dict[int, LogAddress] = field(default_factory=dict)
    error: BaseException | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_acked(self, count: int) -> None:
        """Waits for ``count`` acknowledged frames, or for the writer's error."""
        while len(self.acked) < count and self.error is None:
            self.changed.clear()
            await self.changed.wait()


async def write_frames(
    log: DurableDataLog, history: WriterHistory, count: int, sizes: Sequence[int] = (64, 5_000, 60_000), window: int = 4
) -> None:
    """Write ``count`` frames, at most ``window`` in flight, until the log ends with an error; that is kept."""
    room = asyncio.Semaphore(window)
    first = history.sent

    def answered(number: int, future: asyncio.Future[LogAddress]) -> None:
        room.release()
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            assert number == len(history.acked), "acknowledged out of order or twice"
            history.acked[number] = future.result()
        elif history.error is None:
            history.error = error
        history.changed.set()

    futures = []
    for number in range(first, first + count):
        await room.acquire()
        if history.error is not None:
            break
        history.sent = number + 1
        future = log.append([numbered_frame(history.writer, number, sizes[number % len(sizes)])])
        future.add_done_callback(lambda done, number=number: answered(number, done))  # type: ignore[misc]
        futures.append(future)
    await asyncio.gather(*futures, return_exceptions=True)
    await asyncio.sleep(0)


def check_history(entries: Sequence[LogEntry], histories: Sequence[WriterHistory]) -> None:
    """The writers' acknowledged frames are there, at their addresses, in order, once; nothing else is but a suffix
    of what each writer sent without an answer."""
    addresses = [entry.address for entry in entries]
    assert addresses == sorted(set(addresses)), "addresses repeat or go back"
    found: dict[int, list[int]] = {}
    where: dict[tuple[int, int], LogAddress] = {}
    order: list[int] = []
    for entry in entries:
        writer, number = frame_number(entry.payload)
        found.setdefault(writer, []).append(number)
        where[writer, number] = entry.address
        if not order or order[-1] != writer:
            order.append(writer)
    assert len(order) == len(set(order)), f"a fenced writer wrote again: {order}"
    for history in histories:
        numbers = found.pop(history.writer, [])
        assert numbers == list(range(len(numbers))), f"writer {history.writer}: lost, repeated or reordered: {numbers}"
        assert len(history.acked) <= len(numbers) <= history.sent, f"writer {history.writer}: acked but lost"
        for number, address in history.acked.items():
            assert where[history.writer, number] == address
    assert not found, f"frames of unknown writers {found}"


async def shared_cpo(address: str) -> InMemoryCPO:
    """A CPO whose persistence cluster ``test`` is the Redis at ``address``."""
    cpo = InMemoryCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("g0", (address,)),)))
    return cpo


async def read_entries(log: DurableDataLog) -> list[LogEntry]:
    return [entry async for entry in log.read()]


async def recover(cpo: InMemoryCPO, settings: PlogSettings) -> tuple[RedisDataLog, list[LogEntry]]:
    """Another owner takes container 1 over and reads it."""
    log = RedisDataLog(1, "recoverer", cpo, "test", settings)
    await log.initialize()
    return log, await read_entries(log)


async def close_all(*logs: DurableDataLog) -> None:
    for log in logs:
        try:
            await log.close()
        except PravegaError:
            pass
