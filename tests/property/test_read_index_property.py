"""The read index against byte strings: whatever is appended, merged, moved to Tier 2, evicted and truncated, every
read gives the bytes of the model, and views that were handed out keep theirs."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import SegmentNotFound, SegmentTruncated
from tests.support.fakes.container_without_log import FakeContainer, container, joined

STEPS = ("append", "append", "append", "new", "merge", "flush", "complete", "evict", "truncate", "read", "read", "seal")


class Model:
    """Contents by segment id; ``pending`` are merges that Tier 2 has not moved, in log order."""

    def __init__(self, c: FakeContainer, rng: random.Random) -> None:
        self.c = c
        self.rng = rng
        self.contents: dict[int, bytearray] = {}
        self.pending: list[tuple[int, int, int]] = []
        self.handed_out: list[tuple[tuple[memoryview, ...], bytes]] = []
        self.new()

    def new(self) -> None:
        if len(self.contents) < 5:
            self.contents[self.c.create("s")] = bytearray()

    def any_segment(self) -> int:
        return self.rng.choice(list(self.contents))

    def append(self) -> None:
        segment = self.any_segment()
        if self.c.metadata.segments[segment].is_sealed:
            return
        size = self.rng.choice((1, 10, 100, 5_000, 70_000))
        data = self.rng.randbytes(size)
        self.c.append(segment, data)
        self.contents[segment] += data

    def seal(self) -> None:
        if self.rng.random() < 0.1:
            self.c.seal(self.any_segment())
            self.new()

    def merge(self) -> None:
        if len(self.contents) < 2:
            return
        target, source = self.rng.sample(list(self.contents), 2)
        metadata = self.c.metadata.segments
        if metadata[source].start_offset or metadata[target].is_sealed:
            return
        self.pending.append((target, metadata[target].length, source))
        self.c.merge(target, source)
        self.contents[target] += self.contents.pop(source)

    async def flush(self) -> None:
        """The writer goes on with one segment, live or merged, up to the first part that must be moved instead."""
        metadata = self.c.metadata.segments
        segment = self.rng.choice([*self.contents, *(source for _, _, source in self.pending)])
        limit = min([offset for target, offset, _ in self.pending if target == segment] or [metadata[segment].length])
        low = metadata[segment].storage_length
        if limit > low:
            await self.c.flush(segment, self.rng.randint(low, limit))

    async def complete(self) -> None:
        """The writer moves the oldest merge in Tier 2: target and source are flushed up to it first."""
        if not self.pending:
            return
        target, offset, source = self.pending[0]
        metadata = self.c.metadata.segments
        for segment, length in ((target, offset), (source, metadata[source].length)):
            if metadata[segment].storage_length < length:
                await self.c.flush(segment, length)
            else:
                self.c.storage.segments.setdefault(segment, bytearray())
        await self.c.storage.concat(target, offset, source)
        if self.rng.random() < 0.5:
            await self.read()
        self.pending.pop(0)
        metadata[target].set_storage_length(offset + metadata[source].length)
        if self.rng.random() < 0.5:
            self.c.index.storage_length_changed(target)
        self.c.index.merge_completed(target, source)
        self.c.index.storage_length_changed(target)
        del metadata[source]

    def truncate(self) -> None:
        segment = self.any_segment()
        metadata = self.c.metadata.segments[segment]
        offset = self.rng.randint(metadata.start_offset, metadata.length)
        if self.rng.random() < 0.3 and offset <= metadata.storage_length:
            self.c.truncate(segment, offset)

    def evict(self) -> None:
        self.c.cache.trim(self.rng.choice((0, 50_000, 200_000)))

    async def read(self) -> None:
        segment = self.any_segment()
        metadata = self.c.metadata.segments[segment]
        if metadata.start_offset == metadata.length:
            return
        offset = self.rng.randint(metadata.start_offset, metadata.length - 1)
        wanted = self.rng.choice((1, 100, 10_000, 1_000_000))
        result = await self.c.index.read(segment, offset, wanted)
        expected = bytes(self.contents[segment][offset : offset + wanted])
        assert joined(result.data) == expected
        is_short = len(expected) < wanted
        assert (result.at_tail, result.end_of_segment) == (
            is_short and not metadata.is_sealed,
            is_short and metadata.is_sealed,
        )
        self.handed_out.append((result.data, expected))

    async def step(self) -> None:
        done = getattr(self, self.rng.choice(STEPS))()
        if done is not None:
            await done

    async def check_everything(self) -> None:
        for segment, content in self.contents.items():
            offset = self.c.metadata.segments[segment].start_offset
            while offset < len(content):
                result = await self.c.index.read(segment, offset, 300_000)
                assert joined(result.data) == content[offset : offset + 300_000]
                offset += result.length
        for views, expected in self.handed_out:
            assert joined(views) == expected


async def sequential_run(seed: int) -> None:
    async with container(cache_bytes=300_000) as c:
        model = Model(c, random.Random(seed))
        for _ in range(80):
            await model.step()
        await model.check_everything()


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_reads_match_the_model(seed: int) -> None:
    asyncio.run(sequential_run(seed))


async def concurrent_run(seed: int) -> None:
    """One writer, several readers that follow it from the start, at different speeds, while everything moves."""
    rng = random.Random(seed)
    async with container(cache_bytes=200_000) as c:
        target = c.create("t")
        written = bytearray()

        async def follow(reader: random.Random) -> None:
            offset = 0
            while offset < 400_000:
                try:
                    result = await c.index.read(target, offset, reader.choice((10, 3_000, 100_000)))
                except (SegmentNotFound, SegmentTruncated) as error:
                    raise AssertionError("nothing was truncated or deleted") from error
                assert joined(result.data) == written[offset : offset + result.length]
                offset += result.length

        readers = [asyncio.create_task(follow(random.Random(seed + number))) for number in range(4)]
        while len(written) < 400_000:
            source = c.create("x")
            data = rng.randbytes(rng.choice((100, 9_000, 40_000)))
            if rng.random() < 0.5:
                c.append(target, data)
                written += data
                if rng.random() < 0.5:
                    await c.flush(target)
            else:
                c.append(source, data)
                await c.flush(source, rng.randint(0, len(data)))
                await c.flush(target)
                c.evict()
                offset = len(written)
                written += data
                c.merge(target, source)
                await asyncio.sleep(0)
                await c.flush(source)
                c.evict()
                await c.storage.concat(target, offset, source)
                await asyncio.sleep(0)
                c.metadata.segments[target].set_storage_length(len(written))
                c.index.merge_completed(target, source)
                c.index.storage_length_changed(target)
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*readers), 30)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_concurrent_readers_see_every_byte_once_and_right(seed: int) -> None:
    asyncio.run(concurrent_run(seed))
