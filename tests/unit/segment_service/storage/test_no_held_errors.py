"""Calls of Tier 2 that fail leave nothing behind that only the garbage collector frees, such as the data of a put."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from pravega_common.errors import PravegaError, SegmentNotFound, Unavailable
from segment_service.storage import rolling_storage
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.shared_put import SharedPut
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.held_errors import no_held_errors
from tests.unit.segment_service.storage.world import Log, YieldingClock, open_storage

DATA = bytes(100_000)


async def test_an_object_that_is_not_there(tmp_path: Path) -> None:
    chunks = FilesystemChunkStorage(tmp_path, threads_max=1)
    await chunks.start()
    with no_held_errors():
        with pytest.raises(SegmentNotFound):
            await chunks.get("absent", 0, 1)
        await chunks.put("present", [b"x"])  # by the same thread, which is through with the call before
    await chunks.close()


async def test_writes_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling_storage, "shared_object_bytes_max", 1_000)
    rng = random.Random(1)
    chunks = FaultyChunkStorage(InMemoryChunkStorage(), rng, YieldingClock(rng))
    storage = await open_storage(chunks, Log(), rng)
    await storage.write(7, 0, [b"x"])
    chunks.stop()
    for data in (DATA, DATA[:10]):
        with no_held_errors():
            with pytest.raises(PravegaError):
                await storage.write(7, 1, [data])
            await asyncio.sleep(0)


async def test_a_put_that_fails_for_all_who_wait() -> None:
    shared, may_end = SharedPut(), asyncio.Event()

    async def put() -> None:
        await may_end.wait()
        raise Unavailable("the store is away")

    with no_held_errors():
        waiting = [asyncio.ensure_future(shared.join(put)) for _ in range(3)]
        await asyncio.sleep(0)
        may_end.set()
        assert all(isinstance(one, Unavailable) for one in await asyncio.gather(*waiting, return_exceptions=True))
        waiting.clear()
        await asyncio.sleep(0)
