from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from controller_service.service import Controller
from pravega_common.runtime import failpoints
from tests.support.controller_in_memory import ControllerParts
from tests.support.transaction_world import World


@pytest.fixture
def parts() -> ControllerParts:
    return ControllerParts()


@pytest.fixture
async def controller(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller()
    await controller.start()
    yield controller
    await controller.stop()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world of transactions with the stream ``scope/stream``."""
    made = World()
    await made.create_stream("scope", "stream")
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()
