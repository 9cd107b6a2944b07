"""Fixtures of backups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backups import Place, Worker, backed_up, idle


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Small objects of its Tier 2 are objects of their own, or share others."""
    place = Place()
    place.shares_objects = request.param
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
