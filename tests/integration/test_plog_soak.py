"""Runs random faults on a real Redis, by seed: cuts, lost answers, kills, a full server, take-overs, truncations.

``PRAVEGA_PLOG_SEEDS=100:200`` runs those seeds instead of the few of the suite.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from pravega_common.errors import FailedError, Fenced, UnknownOutcome
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import (
    WriterHistory,
    check_history,
    frame_number,
    numbered_frame,
    read_entries,
    shared_cpo,
    write_frames,
)
from tests.support.proxy import CuttingProxy
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.server_fixtures import proxy as proxy
from tests.support.servers import RedisServer

SETTINGS = PlogSettings(block_bytes=1_200_000, heal_time_max_s=3.0, reply_timeout_s=0.3)
steps = 25
_first, _, _last = os.environ.get("PRAVEGA_PLOG_SEEDS", "0:4").partition(":")
SEEDS = range(int(_first), int(_last))


class Soak:
    """One run: the owner of the moment, every writer's history, and what the truncations dropped."""

    def __init__(self, seed: int, server: RedisServer, proxy: CuttingProxy, cpo: InMemoryCPO) -> None:
        self.random = random.Random(seed)
        self.server = server
        self.proxy = proxy
        self.cpo = cpo
        self.histories: list[WriterHistory] = []
        self.logs: list[RedisDataLog] = []
        self.writing: list[asyncio.Task[None]] = []
        self.dropped_before = LogAddress(0, 0)
        self.seen: list[LogEntry] = []

    async def take_over(self) -> None:
        """Another owner comes, reads, is checked against all histories, and begins to write."""
        while True:
            log = RedisDataLog(1, "owner", self.cpo, "test", SETTINGS)
            self.logs.append(log)
            try:
                await log.initialize()
                entries = await read_entries(log)
                break
            except (FailedError, Fenced, UnknownOutcome):
                await log.close()
        self.check(entries)
        history = WriterHistory(len(self.histories))
        self.histories.append(history)
        sizes = [self.random.choice((16, 300, 40_000, 250_000)) for _ in range(7)]
        self.writing.append(asyncio.create_task(write_frames(log, history, 1_000_000, sizes)))

    def check(self, entries: list[LogEntry]) -> None:
        """Frames that the truncations dropped are put back as they were once read or acknowledged."""
        begin = entries[0].address if entries else self.dropped_before
        assert begin >= self.dropped_before or not entries
        kept = [entry for entry in self.seen if entry.address < begin]
        overlap = [entry.address for entry in self.seen if entry.address >= begin]
        assert [entry.address for entry in entries][: len(overlap)] == overlap, "what was read once has changed"
        missing = self.acked_before(begin, kept)
        self.seen = [*kept, *missing, *entries]
        check_history(self.seen, self.histories)

    def acked_before(self, begin: LogAddress, kept: list[LogEntry]) -> list[LogEntry]:
        """Acknowledged frames before ``begin`` that no recovery has read: truncated by their own writer."""
        read = {entry.address for entry in kept}
        found = []
        for history in self.histories:
            for number, address in history.acked.items():
                if address < begin and address not in read:
                    found.append((address, history.writer, number))
        return [entry_of(address, writer, number) for address, writer, number in sorted(found)]

    async def step(self) -> None:
        action = self.random.choice(
            (self.cut, self.cut, self.lose_answers, self.kill, self.fill, self.take_over, self.truncate)
        )
        await self.some_time(0.08)
        await action()
        if self.histories[-1].error is not None:
            await self.take_over()

    async def some_time(self, most_s: float) -> None:
        """Passes real time, as Redis and the writers do: the faults meet them at random moments."""
        await asyncio.sleep(self.random.random() * most_s)

    async def cut(self) -> None:
        self.proxy.cut()

    async def lose_answers(self) -> None:
        self.proxy.swallow_answers = True
        await self.some_time(0.1)
        self.proxy.cut()
        self.proxy.swallow_answers = False

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.restart_after_kill)

    async def fill(self) -> None:
        self.server.call("CONFIG", "SET", "maxmemory", 1_000_000)
        await self.some_time(0.3)
        self.server.call("CONFIG", "SET", "maxmemory", 0)

    async def truncate(self) -> None:
        history = self.histories[-1]
        if not history.acked:
            return
        address = history.acked[self.random.randrange(len(history.acked))]
        if address < self.dropped_before:
            return
        try:
            await self.logs[-1].truncate(address)
        except (FailedError, Fenced, UnknownOutcome):
            return
        self.dropped_before = address

    async def end(self) -> None:
        for log in self.logs:
            await log.close()
        await asyncio.gather(*self.writing)


def entry_of(address: LogAddress, writer: int, number: int) -> LogEntry:
    """An entry whose content is known from its numbers; its length does not matter here."""
    return LogEntry(address, memoryview(numbered_frame(writer, number, 16)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_faults(seed: int, own_redis: RedisServer, proxy: CuttingProxy) -> None:
    soak = Soak(seed, own_redis, proxy, await shared_cpo(proxy.address))
    await soak.take_over()
    for _ in range(steps):
        await soak.step()
    await soak.take_over()
    await soak.end()
    assert sum(len(history.acked) for history in soak.histories) > 100
    assert frame_number(soak.seen[0].payload)[0] == 0
