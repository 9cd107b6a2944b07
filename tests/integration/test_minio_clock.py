"""Uses a real MinIO from a machine whose clock is a day from the server's: it refuses what is signed so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import minio.time
import pytest

from segment_service.storage.minio import MinioChunkStorage, MinioSettings
from tests.support.servers import MinioServer, running_minio

DAY = timedelta(days=1)
_utc_now = minio.time.utcnow


class MachineClock:
    """What the client takes for now."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        return _utc_now() + self.ahead


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MinioServer]:
    with running_minio(tmp_path / "minio") as server:
        yield server


@pytest.fixture(params=[timedelta(), DAY, -DAY], ids=["right", "ahead", "behind"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    clock = MachineClock(request.param)
    monkeypatch.setattr(minio.time, "utcnow", clock.now)
    return clock


@pytest.fixture
async def storage(server: MinioServer, clock: MachineClock) -> AsyncIterator[MinioChunkStorage]:
    storage = MinioChunkStorage(MinioSettings(server.address, server.access_key, server.secret_key, "tier2"))
    await storage.start()
    yield storage
    await storage.close()


async def use(storage: MinioChunkStorage, name: str) -> None:
    """Make each kind of request."""
    await storage.put(name, [b"some bytes"])
    assert await storage.get(name, 5, 5) == b"bytes"
    assert (await storage.info(name)).length == 10
    assert [info.name async for info in storage.list(name)] == [name]
    assert await storage.delete_all([name]) == {}
    assert [info.name async for info in storage.list(name)] == []


async def test_a_clock_that_differs_stops_nothing(storage: MinioChunkStorage) -> None:
    await use(storage, "chunk")


async def test_a_clock_that_is_set_meanwhile_stops_nothing(storage: MinioChunkStorage, clock: MachineClock) -> None:
    for number, ahead in enumerate((2 * DAY, timedelta(), -DAY)):
        clock.ahead = ahead
        await use(storage, f"chunk-{number}")
