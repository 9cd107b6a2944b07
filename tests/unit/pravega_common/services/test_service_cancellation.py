"""Checks that a task that loses a cancellation does not keep its service from stopping."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.services import base as service
from pravega_common.services.base import Service, ServiceState


async def test_a_task_that_lost_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "cancel_again_s", 0.01)
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    owner = Service("owner")
    await owner.start()
    owner.spawn(stubborn(), "stubborn")
    await asyncio.sleep(0)
    await owner.stop()
    assert lost == 3
    assert owner.state is ServiceState.STOPPED
