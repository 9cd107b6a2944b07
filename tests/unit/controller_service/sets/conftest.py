from __future__ import annotations

import pytest

from tests.support.transaction_world import World


@pytest.fixture
async def world(world: World) -> World:
    """The world of ``scope/stream``, with a second stream ``scope/other`` of one segment."""
    await world.create_stream("scope", "other", 1)
    return world
