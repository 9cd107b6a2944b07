"""Segments in Tier 2 through crashes between any two steps, failing stores, and owners that do not know that they
were fenced."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest

from pravega_common.errors import PravegaError
from pravega_common.runtime import failpoints
from segment_service.sorted_runs import merging, sorted_run_map
from segment_service.storage import compaction, rolling_storage, shared_objects
from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.tier2_garbage import collect_all
from tests.unit.segment_service.storage.world import (
    Log,
    YieldingClock,
    open_storage,
    replay,
    verify,
    verify_nothing_left,
)

OF_OBJECTS = ("storage.write.chunk_stored",)
"""Failpoints that a write of a shared chunk does not pass."""
STORAGE_FAILPOINTS = sorted(name for name in failpoints.KNOWN if name.startswith("storage."))


@pytest.fixture(autouse=True)
def _small_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some manifests and chunks are too large to be shared, and the map of the others is merged."""
    rng = random.Random(request.node.name)
    monkeypatch.setattr(rolling_storage, "shared_object_bytes_max", rng.choice((150, 300, 1_000, 64 << 10)))
    runs_max = rng.choice((5, 10))
    monkeypatch.setattr(merging, "runs_max", runs_max)
    monkeypatch.setattr(sorted_run_map, "runs_max", runs_max)


@pytest.fixture(autouse=True)
def _disarmed() -> object:
    yield
    failpoints.disarm_all()


def test_there_is_a_failpoint_after_each_durable_step() -> None:
    assert len(STORAGE_FAILPOINTS) >= 12


@pytest.mark.parametrize("name", STORAGE_FAILPOINTS)
async def test_a_crash_at_any_point_loses_nothing(name: str, monkeypatch: pytest.MonkeyPatch, all_cases: bool) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 3)
    seeds = 12 if all_cases else 4
    crashes = [await _crash_often(name, random.Random(f"{name} {seed}")) for seed in range(seeds)]
    assert sum(crashes) >= seeds // 4


async def _crash_often(name: str, rng: random.Random) -> int:
    """Owners that leave an orphan, owners that crash at the failpoint, and owners that bring it all to an end."""
    chunks = InMemoryChunkStorage()
    log = Log()
    crashes = 0
    for _ in range(4):
        first = rng.randrange(len(log.operations) + 1)
        log.commit_random(rng, 40)
        await _crash(chunks, log, rng, first, "storage.write.chunk_stored")
        crashes += await _crash(chunks, log, rng, first, name)
        storage = await open_storage(chunks, log, rng)
        await replay(storage, log, rng, first)
        await verify(storage, log)
    await verify_nothing_left(chunks, log, rng)
    return crashes


class Crash(BaseException):
    """The end of a process: nobody handles it."""


def _crash_at(hit: int) -> Callable[[], None]:
    hits = itertools.count(1)

    def action() -> None:
        if next(hits) == hit:
            raise Crash

    return action


async def _crash(chunks: InMemoryChunkStorage, log: Log, rng: random.Random, first: int, name: str) -> int:
    is_at_start = name == shared_objects.OPENED
    if is_at_start:
        failpoints.arm(name, _crash_at(1))
    try:
        storage = await open_storage(chunks, log, rng, 0.0 if name in OF_OBJECTS else 0.7)
        if not is_at_start:
            failpoints.arm(name, _crash_at(rng.choice((1, 1, 2, 3, 5))))
        await storage.sweeper.sweep()
        await replay(storage, log, rng, first)
        await storage.garbage.collect()
    except Crash:
        return 1
    finally:
        failpoints.disarm_all()
    return 0


@pytest.mark.parametrize("seed", range(30))
async def test_a_store_that_fails_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    inner = InMemoryChunkStorage()
    log = Log()
    rates = FaultRates(unavailable=0.1, unknown_done=0.05, unknown_lost=0.05, unknown_late=0.05)
    for _ in range(3):
        chunks = FaultyChunkStorage(inner, rng, YieldingClock(rng), rates)
        log.commit_random(rng, 40)
        storage = await open_storage(chunks, log, rng)
        await replay(storage, log, rng)
        await chunks.land_late_puts()
        await verify(storage, log)
    quiet = await open_storage(inner, log, rng)
    await replay(quiet, log, rng)
    await verify(quiet, log)
    await verify_nothing_left(inner, log, rng, puts_were_late=True)


@pytest.mark.parametrize("seed", [*range(50), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(50, 100))])
async def test_a_zombie_cannot_harm_what_later_owners_have(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 2)
    rng = random.Random(seed)
    inner = InMemoryChunkStorage()
    log = Log()
    log.commit_random(rng, 25)
    rates = FaultRates(unknown_done=0.03, unknown_late=0.03, delay_max_s=0.01)
    zombies: list[asyncio.Task[None]] = []
    wrappers: list[FaultyChunkStorage] = []
    for _ in range(4):
        wrappers.append(FaultyChunkStorage(inner, rng, YieldingClock(rng), rates))
        zombie = await open_storage(wrappers[-1], log, rng)
        zombies.append(asyncio.create_task(_until_fenced(zombie, log, random.Random(rng.random()))))
        for _ in range(rng.choice((50, 500, 1500))):
            await asyncio.sleep(0)
        log.commit_random(rng, 5)
    slow = FaultyChunkStorage(inner, rng, YieldingClock(rng), FaultRates(delay_max_s=0.01))
    owner = await open_storage(slow, log, rng)
    await replay(owner, log, rng)
    await verify(owner, log)
    await asyncio.gather(*zombies)
    for wrapper in wrappers:
        await wrapper.land_late_puts()
    await verify(owner, log)
    last = await open_storage(inner, log, rng)
    await replay(last, log, rng)
    await last.sweeper.sweep()
    await collect_all(last)
    await verify(last, log)
    await verify_nothing_left(inner, log, rng, puts_were_late=True)


async def _until_fenced(storage: object, log: Log, rng: random.Random) -> None:
    """An owner that goes on for as long as nothing stops it."""
    operations = len(log.operations)
    view = Log(log.epoch, log.operations[:operations], dict(log.segments), log.next_id)
    try:
        await replay(storage, view, rng)  # type: ignore[arg-type]
        await storage.sweeper.sweep()  # type: ignore[attr-defined]
        await storage.garbage.collect()  # type: ignore[attr-defined]
    except (PravegaError, AssertionError):
        return  # fenced, or confused by what later owners deleted: it must only not do harm
