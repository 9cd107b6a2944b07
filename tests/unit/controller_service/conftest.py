from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from controller_service.service import Controller
from pravega_common.runtime import failpoints
from tests.support.controller_in_memory import ControllerParts


@pytest.fixture
def parts() -> ControllerParts:
    return ControllerParts()


@pytest.fixture
async def controller(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller()
    await controller.start()
    yield controller
    await controller.stop()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()
