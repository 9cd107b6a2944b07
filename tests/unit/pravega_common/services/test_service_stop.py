"""Stops a service that is still starting: the start is cut short, and what it took is released once."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import Unavailable
from pravega_common.services.base import Service, ServiceState


class SlowToStart(Service):
    """Takes something at its start, and then waits for what never comes."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.taken = asyncio.Event()
        self.events: list[str] = []

    async def on_start(self) -> None:
        self.taken.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.events.append("start ended")

    async def on_stop(self) -> None:
        self.events.append("released")


async def test_stop_cuts_a_start_short() -> None:
    service = SlowToStart()
    start = asyncio.create_task(service.start())
    await service.taken.wait()
    async with asyncio.timeout(5):
        await service.stop()
        with pytest.raises(Unavailable, match="stopped while it started"):
            await start
        await service.stop()
    assert service.events == ["start ended", "released"]
    assert service.state is ServiceState.STOPPED


async def test_a_cancelled_start_fails_and_releases() -> None:
    service = SlowToStart()
    start = asyncio.create_task(service.start())
    await service.taken.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert service.events == ["start ended", "released"]
    assert service.state is ServiceState.FAILED
