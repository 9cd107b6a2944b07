"""Fixtures of backups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backups import Place, Worker, backed_up, idle


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    await place.mark()
    yield place


@pytest.fixture
async def target() -> Place:
    return Place()


@pytest.fixture
async def folder(place: Place, tmp_path: Path) -> Path:
    container = await place.open()
    worker = Worker(place, container, 3)
    await worker.run(40)
    await backed_up(place, tmp_path / "b", idle)
    await container.stop()
    return tmp_path / "b"
