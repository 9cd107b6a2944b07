"""Reads of a whole container, with its storage writer, Tier 2, a cache that is too small, and restarts, against byte
strings: the read index must agree with what the others really do, in any order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.runtime.clock import SystemClock
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.segment_container import ContainerConfig, SegmentContainer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from segment_service.writer.storage_writer import StorageWriter
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore

STEPS = ("append",) * 5 + ("create", "merge", "merge", "truncate", "delete", "evict", "pause", "pause") + ("read",) * 6


class World:
    """The parts that outlive a container: its log, Tier 2, and the cache of the store."""

    def __init__(self, seed: int) -> None:
        self.logs = InMemoryLogStore()
        self.chunks = InMemoryChunkStorage()
        self.cache = CacheManager(InMemoryCacheStorage(150_000))
        self.seed = seed

    @asynccontextmanager
    async def container(self, settings: ContainerConfig | None = None) -> AsyncIterator[SegmentContainer]:
        clock = SystemClock()
        config = WriterConfig(flush_bytes=20_000, flush_age_s=0.004, transaction_age_s=0.01, tick_s=0.001)
        chunks = self.chunks
        storage = RollingStorage(chunks, 0, clock, background=False)
        container = SegmentContainer(
            InMemoryDataLog(0, self.logs),
            storage,
            SortedRunMaps(0, chunks, storage, clock),
            lambda metadata, storage, spawn, check_owner: ContainerReadIndex(
                metadata, storage, self.cache, spawn, check_owner
            ),
            lambda source, storage: StorageWriter(source, storage, clock, config, random.Random(self.seed)),
            StoreBackPressure(),
            clock,
            settings,
        )
        await container.start()
        try:
            yield container
            assert container.failure is None, container.failure
        finally:
            await container.stop()


class Model:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.contents: dict[str, bytearray] = {}
        self.starts: dict[str, int] = {}
        self.made = 0

    async def create(self, container: SegmentContainer) -> None:
        if len(self.contents) < 6:
            self.made += 1
            name = f"scope/segment-{self.made}"
            await container.create_segment(name)
            self.contents[name] = bytearray()
            self.starts[name] = 0

    def pick(self) -> str:
        return self.rng.choice(list(self.contents))

    async def append(self, container: SegmentContainer) -> None:
        name = self.pick()
        pieces = [self.rng.randbytes(self.rng.choice((1, 50, 3_000, 30_000))) for _ in range(self.rng.randint(1, 3))]
        results = await asyncio.gather(*(container.append(name, [piece]) for piece in pieces))
        self.contents[name] += b"".join(pieces)
        assert results[-1] == len(self.contents[name])

    async def merge(self, container: SegmentContainer) -> None:
        target, source = self.rng.sample(list(self.contents), 2) if len(self.contents) > 1 else ("", "")
        if source and not self.starts[source]:
            result = await container.merge(target, source)
            self.contents[target] += self.contents.pop(source)
            assert result.target_length == len(self.contents[target])

    async def truncate(self, container: SegmentContainer) -> None:
        name = self.pick()
        if self.rng.random() < 0.5:
            self.starts[name] = self.rng.randint(self.starts[name], len(self.contents[name]))
            await container.truncate(name, self.starts[name])

    async def delete(self, container: SegmentContainer) -> None:
        if len(self.contents) > 3 and self.rng.random() < 0.3:
            name = self.pick()
            del self.contents[name]
            await container.delete(name)

    async def read(self, container: SegmentContainer) -> None:
        name = self.pick()
        content, start = self.contents[name], self.starts[name]
        if start < len(content):
            offset = self.rng.randint(start, len(content) - 1)
            wanted = self.rng.choice((1, 100, 20_000, 2_000_000))
            result = await container.read(name, offset, wanted)
            expected = content[offset : offset + wanted]
            assert b"".join(result.data) == expected
            assert result.at_tail == (len(expected) < wanted)

    async def read_everything(self, container: SegmentContainer) -> None:
        for name, content in self.contents.items():
            offset = self.starts[name]
            while offset < len(content):
                result = await container.read(name, offset, 100_000)
                assert b"".join(result.data) == content[offset : offset + 100_000], (name, offset)
                offset += result.length


async def run(seed: int) -> None:
    rng = random.Random(seed)
    world, model = World(seed), Model(rng)
    for _ in range(3):
        async with AsyncExitStack() as stack:
            container = await stack.enter_async_context(world.container())
            await model.create(container)
            await model.read_everything(container)
            for _ in range(rng.randint(10, 80)):
                step = rng.choice(STEPS)
                if step == "pause":
                    await asyncio.sleep(rng.choice((0, 0.002, 0.02)))
                elif step == "evict":
                    world.cache.trim(0)
                else:
                    await getattr(model, step)(container)
            await model.read_everything(container)
        assert world.cache.storage.bytes_used == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_reads_of_a_whole_container_match_the_model(seed: int) -> None:
    asyncio.run(run(seed))
