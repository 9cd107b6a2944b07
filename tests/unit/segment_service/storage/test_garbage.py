"""Names that wait for their deletion are as many as there are objects to delete, however often they are found."""

from __future__ import annotations

import pytest

from pravega_common.errors import Unavailable
from pravega_common.runtime.clock import SystemClock
from segment_service.maintenance.read_only import ContainerReader
from segment_service.storage import manifest_store
from segment_service.storage.chunk_names import ChunkId
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.sorted_map_contract import STAMP, nothing
from tests.support.tier2_garbage import collect_all

FIRST, SECOND = 1, 2


class Chunks(InMemoryChunkStorage):
    """Fails deletions while it is told to."""

    fails_deletions = False

    async def delete(self, name: str) -> None:
        if self.fails_deletions:
            raise Unavailable(f"{name} cannot be deleted now")
        await super().delete(name)


async def read_in_turn(storage: RollingStorage, rounds: int) -> None:
    """Each read loads its segment again: there is room for the view of one."""
    for _ in range(rounds):
        for segment_id in (FIRST, SECOND):
            assert bytes(await storage.read(segment_id, 0, 4)) == b"0123"


async def test_a_name_that_loads_find_again_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_store, "views_max", 1)
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    for segment_id in (FIRST, SECOND):
        for offset in range(4):
            await storage.write(segment_id, offset, [b"%d" % offset])
    await read_in_turn(storage, 1)
    waiting = storage.garbage.waiting_names
    await read_in_turn(storage, 10)
    assert storage.garbage.waiting_names == waiting
    chunks.fails_deletions = True
    with pytest.raises(Unavailable):
        await storage.garbage.collect()
    await read_in_turn(storage, 1)
    assert storage.garbage.waiting_names == waiting
    chunks.fails_deletions = False
    await collect_all(storage)
    manifests = [info.name async for info in chunks.list(storage.layout.manifests)]
    assert len(manifests) == 4, "a base and a delta of each"


async def test_a_name_is_taken_again_once_it_was_deleted() -> None:
    """A put of it that had no answer may be done behind its deletion."""
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    name = storage.layout.chunk(ChunkId(FIRST, 1, 1))
    for _ in range(2):
        await chunks.put(name, [b"late"])
        storage.garbage.discard_found([name])
        storage.garbage.discard_found([name])
        assert storage.garbage.waiting_names == 1
        await collect_all(storage)
        assert not [info async for info in chunks.list(name)]


async def test_a_reader_beside_the_owner_remembers_nothing() -> None:
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    for offset in range(4):
        await storage.write(FIRST, offset, [b"%d" % offset])
    assert storage.garbage.waiting_names
    reader = ContainerReader(chunks, 0, SystemClock())
    assert (await reader.view(FIRST)).length == 4
    assert not reader._garbage.waiting_names  # private: what it would remember
