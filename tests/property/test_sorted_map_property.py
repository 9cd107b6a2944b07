"""A sorted map against a dictionary: owners that crash at every point, zombies, and a Tier 2 that fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from unittest import mock

import pytest

from pravega_common.errors import DataCorruption, Fenced, PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime import failpoints
from segment_service.contracts.segment_storage import LogState
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.sorted_run_map import SortedRunMap
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.tier2_garbage import collect_all
from tests.unit.segment_service.storage.world import YieldingClock

KEYS = 60
Owner = tuple[RollingStorage, SortedRunMaps, SortedRunMap]
POINTS = sorted(name for name in failpoints.KNOWN if name.startswith("sorted_runs."))


@pytest.fixture(autouse=True)
def small_limits() -> Iterator[None]:
    package = "segment_service.sorted_runs"
    with (
        mock.patch(f"{package}.run_writer.block_bytes", 120),
        mock.patch(f"{package}.run_writer.file_bytes_max", 400),
        mock.patch(f"{package}.merging.runs_max", 6),
        mock.patch(f"{package}.sorted_run_map.runs_max", 6),
        mock.patch(f"{package}.merging.merged_runs_min", 2),
    ):
        yield
    failpoints.disarm_all()


class World:
    """The log, which says what is true, and the owners that flush it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stored = InMemoryChunkStorage()
        self.clock = YieldingClock(self.rng)
        rates = FaultRates(unavailable=0.02, unknown_done=0.03, unknown_lost=0.03, unknown_late=0.02)
        self.chunks = FaultyChunkStorage(self.stored, self.rng, self.clock, rates)
        self.epoch = 0
        self.truth: dict[bytes, bytes] = {}
        self.unflushed: dict[bytes, bytes | None] = {}
        """Changes since the last flush that returned: a recovering owner has them of the log."""
        self.number = 0

    async def open(self) -> Owner:
        while True:
            self.epoch += 1
            epoch = self.epoch
            cache = BlockCache(self.rng.choice((0, 2_000, 1 << 20)))
            storage = RollingStorage(self.chunks, 1, self.clock, background=False)
            maps = SortedRunMaps(1, self.chunks, storage, self.clock, cache)

            async def barrier(epoch: int = epoch) -> None:
                await asyncio.sleep(0)
                if epoch < self.epoch:
                    raise Fenced(f"{epoch} < {self.epoch}")

            try:
                await storage.start(epoch, barrier, self.stamp)
                opened = maps.sorted_map("things")
                await opened.open()
            except (Unavailable, UnknownOutcome):
                continue
            return storage, maps, opened

    def stamp(self) -> LogState:
        return LogState(bytes(range(16)), self.number, 1)

    def change(self) -> None:
        self.number += 1
        key = b"key-%03d" % self.rng.randrange(KEYS)
        value = None if self.rng.random() < 0.3 else self.rng.randbytes(self.rng.randrange(40))
        self.unflushed[key] = value
        if value is None:
            self.truth.pop(key, None)
        else:
            self.truth[key] = value

    async def flush(self, opened: SortedRunMap) -> None:
        changes, stamp = dict(self.unflushed), self.stamp()
        await opened.flush(changes, stamp)
        self.unflushed = {key: value for key, value in self.unflushed.items() if changes.get(key, b"-") != value}

    async def check(self, opened: SortedRunMap) -> None:
        """The map with the unflushed changes on top of it is the truth."""
        while True:
            try:
                found: dict[bytes, bytes | None] = {}
                first = b""
                while page := await opened.scan(first, self.rng.choice((1, 7, 1_000))):
                    found.update(page)
                    first = page[-1][0] + b"\0"
                wanted = [b"key-%03d" % self.rng.randrange(KEYS) for _ in range(5)]
                some = await opened.get_many(wanted)
                break
            except Unavailable:
                continue
        assert list(found) == sorted(found)
        assert some == {key: found[key] for key in wanted if key in found}
        assert not any(opened.is_surely_absent(key) for key in some)
        merged = {**found, **self.unflushed}
        assert {key: value for key, value in merged.items() if value is not None} == self.truth

    async def step(self, storage: RollingStorage, maps: SortedRunMaps, opened: SortedRunMap) -> None:
        drawn = self.rng.random()
        if drawn < 0.5:
            for _ in range(self.rng.randrange(8)):
                self.change()
        elif drawn < 0.8:
            await self.flush(opened)
        elif drawn < 0.9:
            await asyncio.gather(maps.merge_waiting(), self.flush(opened))
        elif drawn < 0.95:
            await storage.garbage.collect()
        else:
            await self.check(opened)


async def bury(zombie: Owner, known: dict[bytes, bytes | None], stamp: LogState, rng: random.Random) -> None:
    """An owner that does not know that it was replaced goes on for a while, with what the log had at that time."""
    storage, maps, opened = zombie
    for _ in range(rng.randrange(4)):
        try:
            call = rng.choice(("flush", "merge", "collect", "read"))
            if call == "flush":
                await opened.flush(known, stamp)
            elif call == "merge":
                await maps.merge_waiting()
            elif call == "collect":
                await storage.garbage.collect()
            else:
                await opened.scan(b"", 100)
        except PravegaError as error:
            assert not isinstance(error, DataCorruption), error


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_flushed_is_lost(seed: int) -> None:
    world = World(seed)
    owner = await world.open()
    for _ in range(8):
        point = world.rng.choice([*POINTS, ""])
        if point:
            failpoints.arm(point, failpoints.raise_on_hit(point, world.rng.randrange(1, 6)))
        for _ in range(world.rng.randrange(5, 40)):
            try:
                await world.step(*owner)
            except (Unavailable, UnknownOutcome):
                continue
            except failpoints.FailpointError:
                break
        failpoints.disarm_all()
        zombie, known, stamp = owner, dict(world.unflushed), world.stamp()
        owner = await world.open()
        if world.rng.random() < 0.5:
            await world.chunks.land_late_puts()
        await world.check(owner[2])
        if world.rng.random() < 0.7:
            if world.rng.random() < 0.5:
                for _ in range(5):
                    world.change()
            await bury(zombie, known, stamp, world.rng)
            await world.check(owner[2])
    await world.chunks.land_late_puts()
    world.chunks.rates = FaultRates()
    storage, maps, opened = await world.open()
    await world.flush(opened)
    await maps.merge_waiting()
    await collect_all(storage)
    await world.check(opened)
    assert len(opened.run_lengths) <= 6


async def test_every_failpoint_is_reached() -> None:
    assert len(POINTS) == 5
    reached: set[str] = set()
    for name in POINTS:
        failpoints.arm(name, lambda name=name: reached.add(name))  # type: ignore[misc]
    world = World(1)
    world.chunks.rates = FaultRates()
    owner = await world.open()
    for _ in range(200):
        await world.step(*owner)
    assert reached == set(POINTS)
