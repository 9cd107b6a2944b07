"""A restore that takes long keeps others out until its end, and stops when it cannot."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from segment_service.contracts.data_log import DurableDataLog
from segment_service.maintenance.restore_plan import RestorePlan
from segment_service.maintenance.store_restore import StoreRestore
from tests.support.backups import Place
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO

LOCK, LOCK_MS = "store-restore", 600_000
PLAN = RestorePlan(0, 1, 90, 70, 5)


class SlowRestart:
    """Begins no log before it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_stopped = False

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.is_stopped = True
            raise
        raise Unavailable("no log in this test")


class Restoring:
    """A restore at its work, over a clock that is moved by hand."""

    def __init__(self) -> None:
        self.clock, self.restart = ManualClock(), SlowRestart()
        self.cpo = InMemoryCPO(self.clock)

    def restore(self) -> StoreRestore:
        return StoreRestore(self.cpo, Place().chunks, None, self.restart, self.clock)

    async def begun(self) -> asyncio.Task[None]:
        work = asyncio.create_task(self.restore().carry_out(PLAN))
        await self.restart.begun.wait()
        return work


async def test_others_are_kept_out_to_the_end() -> None:
    scene = Restoring()
    work = await scene.begun()
    for _ in range(30):
        await scene.clock.advance(60)
    with pytest.raises(ConfigurationError, match="somebody else is restoring"):
        await scene.restore().carry_out(PLAN)
    scene.restart.may_end.set()
    with pytest.raises(Unavailable, match="no log in this test"):
        await work
    assert await scene.cpo.try_lock(LOCK, "another", LOCK_MS)


async def test_one_that_lost_its_claim_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Restoring()
    work = await scene.begun()

    async def taken(*_: object) -> bool:
        return False

    monkeypatch.setattr(scene.cpo, "try_lock", taken)
    await scene.clock.advance(61)
    with pytest.raises(Unavailable, match="somebody else is restoring this cluster now"):
        await work
    assert scene.restart.is_stopped


async def test_one_stops_before_its_claim_runs_out_while_the_cpo_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Restoring()
    work = await scene.begun()

    async def away(*_: object) -> bool:
        raise Unavailable("the CPO is away")

    monkeypatch.setattr(scene.cpo, "try_lock", away)
    for _ in range(8):
        await scene.clock.advance(60)
    assert not work.done()
    await scene.clock.advance(60)
    with pytest.raises(Unavailable, match="others may be restoring this cluster soon"):
        await work
    assert scene.restart.is_stopped
