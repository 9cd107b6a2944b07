"""Bits that flip in Tier 2 while a container works: no wrong byte is read, nothing acked is lost, and what is whole
goes on."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import SegmentDamaged
from segment_service.container.segment_container import ContainerConfig, SegmentContainer
from tests.property.test_read_index_full_stack import Model, World
from tests.support.eventually import eventually

STEPS = ("append",) * 5 + ("create", "merge", "truncate", "delete", "evict", "pause", "pause", "flip") + ("read",) * 8

SOON_STOPPED = ContainerConfig(stop_flush_max_s=0.1)
"""What is damaged cannot be flushed, and a stop would wait for it to the end."""


class Damage:
    """Flips bits of objects, and flips them back."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.flipped: dict[str, bytes] = {}

    def flip(self) -> None:
        """Change one bit of a chunk or a manifest of a segment.

        Without the metadata table a container stops, as it knows no segment: see the tests of the table.
        """
        objects = self.world.chunks.objects
        of_segments = (name for name in objects if "/e/" not in name and "/t/" not in name)
        names = sorted(name for name in of_segments if name not in self.flipped and objects[name])
        if names:
            name = self.rng.choice(names)
            self.flipped[name] = objects[name]
            damaged = bytearray(objects[name])
            damaged[self.rng.randrange(len(damaged))] ^= 1 << self.rng.randrange(8)
            objects[name] = bytes(damaged)

    def restore(self) -> None:
        for name, data in self.flipped.items():
            if name in self.world.chunks.objects:
                self.world.chunks.objects[name] = data
        self.flipped.clear()


class DamagedModel(Model):
    """A model of segments that may refuse a step. A refused one did nothing."""

    async def append(self, container: SegmentContainer) -> None:
        name, data = self.pick(), self.rng.randbytes(self.rng.choice((1, 50, 3_000, 30_000)))
        length = await container.append(name, [data])
        self.contents[name] += data
        assert length == len(self.contents[name])

    async def truncate(self, container: SegmentContainer) -> None:
        name = self.pick()
        start = self.rng.randint(self.starts[name], len(self.contents[name]))
        await container.truncate(name, start)
        self.starts[name] = start

    async def merge(self, container: SegmentContainer) -> None:
        target, source = self.rng.sample(list(self.contents), 2) if len(self.contents) > 1 else ("", "")
        if source and not self.starts[source]:
            await container.merge(target, source)
            self.contents[target] += self.contents.pop(source)

    async def read(self, container: SegmentContainer) -> None:
        """Fewer bytes may come than wanted, but no others, and at least one."""
        name = self.pick()
        content, start = self.contents[name], self.starts[name]
        if start < len(content):
            offset = self.rng.randint(start, len(content) - 1)
            found = b"".join((await container.read(name, offset, self.rng.choice((1, 100, 20_000, 2_000_000)))).data)
            assert found
            assert found == content[offset : offset + len(found)]

    async def step(self, container: SegmentContainer, name: str) -> None:
        try:
            await getattr(self, name)(container)
        except SegmentDamaged:
            for segment, content in self.contents.items():
                info = await container.get_info(segment)
                assert (info.start_offset, info.length) == (self.starts[segment], len(content))


async def run(seed: int) -> None:
    rng = random.Random(seed)
    world, model = World(seed), DamagedModel(rng)
    damage = Damage(world, rng)
    for _ in range(3):
        async with AsyncExitStack() as stack:
            container = await stack.enter_async_context(world.container(SOON_STOPPED))
            await model.create(container)
            for _ in range(rng.randint(10, 80)):
                name = rng.choice(STEPS)
                if name == "pause":
                    await asyncio.sleep(rng.choice((0, 0.002, 0.02)))
                elif name == "evict":
                    world.cache.trim(0)
                elif name == "flip":
                    damage.flip()
                else:
                    await model.step(container, name)
    damage.restore()
    async with AsyncExitStack() as stack:
        container = await stack.enter_async_context(world.container())
        await eventually(lambda: not container.pending.unflushed, "everything is flushed")
        assert not container.metadata.quarantine
        await model.read_everything(container)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_no_wrong_byte_is_read_and_nothing_is_lost(seed: int) -> None:
    asyncio.run(run(seed))
