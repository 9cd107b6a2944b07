"""The window of frames in flight, and the grouping that comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import (
    DurableDataLog,
    LogAddress,
    frame_bytes_max,
    frames_in_flight_bytes_max,
    frames_in_flight_max,
)
from tests.support.containers import ContainerKit
from tests.support.fakes.data_log import InMemoryDataLog


class WatchedLog(InMemoryDataLog):
    """Counts what is in flight."""

    frames: list[int]
    in_flight: int = 0
    in_flight_max: int = 0

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        self.frames = [*getattr(self, "frames", []), sum(len(buffer) for buffer in frame)]
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        future = super().append(frame, checksum)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: asyncio.Future[LogAddress]) -> None:
        self.in_flight -= 1


class WatchedKit(ContainerKit):
    """Makes containers on one watched log."""

    log: WatchedLog

    def make_log(self, container_id: int) -> DurableDataLog:
        self.log = WatchedLog(container_id, self.logs)
        return self.log


@pytest.fixture
def kit() -> WatchedKit:
    return WatchedKit()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_never_more_than_the_window_is_in_flight(kit: WatchedKit) -> None:
    container = await kit.open()
    log = kit.log
    await container.create_segment("s")
    kit.logs.faults.hold()
    appends = [container.append("s", [bytes(900_000)]) for _ in range(12)]
    await turns()
    assert log.in_flight == frames_in_flight_max
    assert sum(log.frames[-4:]) <= frames_in_flight_bytes_max
    assert max(log.frames) <= frame_bytes_max
    kit.logs.faults.release()
    await asyncio.gather(*appends)
    assert log.in_flight_max == frames_in_flight_max
    await container.stop()


async def test_below_the_window_everything_is_sent_at_once_and_at_it_what_waits_forms_one_frame(
    kit: WatchedKit,
) -> None:
    container = await kit.open()
    log = kit.log
    await container.create_segment("s")
    before = len(log.frames)
    kit.logs.faults.hold()
    appends = []
    for _ in range(50):
        appends.append(container.append("s", [b"x"]))
        await turns(3)
    assert len(log.frames) - before == frames_in_flight_max
    kit.logs.faults.release()
    await asyncio.gather(*appends)
    assert len(log.frames) - before == frames_in_flight_max + 1
    await container.stop()


async def test_what_is_queued_together_shares_a_frame(kit: WatchedKit) -> None:
    container = await kit.open()
    log = kit.log
    await container.create_segment("s")
    before = len(log.frames)
    await asyncio.gather(*(container.append("s", [b"x" * 100]) for _ in range(1_000)))
    assert len(log.frames) - before == 1
    await container.stop()
