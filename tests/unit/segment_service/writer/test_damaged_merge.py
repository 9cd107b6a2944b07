"""A transaction's segment whose manifest disappears while its merge waits: it and its target are held, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.support.eventually import eventually
from tests.support.fakes.faulty_chunk_storage import FaultRates
from tests.support.fakes.writer_source import TRANSACTION, CommittedLog
from tests.unit.segment_service.writer import test_storage_writer
from tests.unit.segment_service.writer.test_storage_writer import Owner, new_owner, verify

STORED, MORE = b"in Tier 2 and nowhere else", b", and in the log"


@pytest.fixture(autouse=True)
def _looked_at_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_storage_writer, "CONFIG", replace(test_storage_writer.CONFIG, damage_recheck_s=0.05))


class World:
    """A container whose owners follow each other on one Tier 2."""

    def __init__(self) -> None:
        self.log = CommittedLog()
        self.chunks = InMemoryChunkStorage()
        self._rng = random.Random(0)

    def create(self, name: str) -> int:
        return self.log.create_named(name)

    async def owner(self) -> Owner:
        return await new_owner(self.log, self.chunks, self._rng, FaultRates())

    def take_manifests(self, segment_id: int) -> dict[str, bytes]:
        """Remove what Tier 2 knows the segment by; returns it."""
        names = [name for name in self.chunks.objects if "/m/" in name and int(name.split("/")[2], 16) == segment_id]
        assert names
        taken = {name: self.chunks.objects.pop(name) for name in names}
        for name in names:
            self.chunks._names.remove(name)
        return taken

    async def put_back(self, taken: dict[str, bytes]) -> None:
        for name, data in taken.items():
            await self.chunks.put(name, [data])


Merges = Callable[[CommittedLog, int, int], tuple[int, ...]]


def merge(log: CommittedLog, target: int, source: int) -> tuple[int, ...]:
    log.merge(target, source)
    return (target, source)


def merge_through_another(log: CommittedLog, target: int, source: int) -> tuple[int, ...]:
    """The source becomes part of a segment that has all its own bytes in the cache, and with that of the target."""
    between = log.create_named(f"{TRANSACTION[:-1]}2")
    log.append(between, b"between")
    log.merge(between, source)
    log.merge(target, between)
    return (target, source)


@pytest.mark.parametrize("merges", [merge, merge_through_another])
@pytest.mark.parametrize("more", [b"", MORE])
async def test_only_the_segments_of_the_merge_are_held(merges: Merges, more: bytes) -> None:
    world = World()
    log = world.log
    target, source, other = world.create("scope/target"), world.create(TRANSACTION), world.create("scope/other")
    log.append(source, STORED)
    log.append(target, b"target")
    first = await world.owner()
    await first.settle()
    await first.stop()
    taken = world.take_manifests(source)

    log.append(source, more)
    held = merges(log, target, source)
    log.append(other, b"other")
    owner = await world.owner()
    owner.container.show_all()
    await eventually(lambda: set(owner.container.held) == set(held), "the segments of the merge are held")
    assert all("must have at least" in reason for reason in owner.container.held.values())
    await eventually(
        lambda: owner.container.state.segments[other].storage_length == len(b"other"), "the other segment is flushed"
    )

    await world.put_back(taken)
    await owner.settle()
    assert not owner.container.held
    await verify(owner, log, world.chunks)
    await owner.stop()
