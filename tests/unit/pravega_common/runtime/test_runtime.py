"""Checks clocks, the life cycle of services and failpoints."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, FailedError
from pravega_common.runtime import failpoints
from pravega_common.runtime.deadline import Deadline
from pravega_common.services.base import Service, ServiceState
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock


async def test_a_manual_clock_wakes_sleepers_in_order_of_time() -> None:
    clock = ManualClock()
    woken: list[float] = []

    async def sleep(delay_s: float) -> None:
        await clock.sleep(delay_s)
        woken.append(delay_s)

    tasks = [asyncio.ensure_future(sleep(delay_s)) for delay_s in (3.0, 1.0, 2.0, 9.0)]
    await asyncio.sleep(0)
    await clock.advance(5.0)
    assert woken == [1.0, 2.0, 3.0]
    tasks[-1].cancel()


async def test_a_deadline_is_over_when_its_clock_says_so() -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 2.0)
    assert deadline.remaining_s == 2.0
    await clock.advance(2.0)
    assert deadline.expired
    assert deadline.remaining_s == 0.0


class Worker(Service):
    def __init__(self) -> None:
        super().__init__("worker")
        self.released = 0
        self.go = asyncio.Event()

    async def on_start(self) -> None:
        self.spawn(self._work(), "work")

    async def on_stop(self) -> None:
        self.released += 1

    async def _work(self) -> None:
        await self.go.wait()
        raise FailedError("the work broke")


async def test_a_service_stops_cleanly_and_twice() -> None:
    worker = Worker()
    await worker.start()
    await worker.stop()
    await worker.stop()
    assert worker.state is ServiceState.STOPPED
    assert worker.released == 1
    await worker.wait_stopped()


async def test_a_task_that_dies_takes_its_service_down() -> None:
    worker = Worker()
    heard: list[BaseException] = []
    worker.on_failure(heard.append)
    await worker.start()
    worker.go.set()
    with pytest.raises(FailedError, match="the work broke"):
        await worker.wait_stopped()
    assert worker.state is ServiceState.FAILED
    assert [str(error) for error in heard] == ["the work broke"]
    assert worker.released == 1


async def test_a_failed_start_releases_what_it_took() -> None:
    class Broken(Worker):
        async def on_start(self) -> None:
            raise FailedError("no start")

    worker = Broken()
    with pytest.raises(FailedError, match="no start"):
        await worker.start()
    assert worker.released == 1
    assert worker.state is ServiceState.FAILED


class Owner(Service):
    """Owns a worker; its start takes until it is let go."""

    def __init__(self, part: Worker) -> None:
        super().__init__("owner")
        self.part = part
        self.start_ends = asyncio.Event()
        self.released = 0

    async def on_start(self) -> None:
        self.own(self.part)
        await self.part.start()
        await self.start_ends.wait()

    async def on_stop(self) -> None:
        self.released += 1
        await self.part.stop()


async def test_a_part_that_dies_takes_its_owner_down() -> None:
    owner = Owner(Worker())
    owner.start_ends.set()
    await owner.start()
    owner.part.go.set()
    with pytest.raises(FailedError, match="the work broke"):
        await owner.wait_stopped()
    assert (owner.state, owner.released) == (ServiceState.FAILED, 1)


async def test_a_part_that_dies_ends_the_start_of_its_owner() -> None:
    owner = Owner(Worker())
    owner.part.go.set()
    with pytest.raises(FailedError, match="the work broke"):
        await asyncio.wait_for(owner.start(), 5)
    assert (owner.state, owner.released) == (ServiceState.FAILED, 1)


async def test_a_part_that_does_not_start_is_released_once_with_its_owner() -> None:
    class Broken(Worker):
        async def on_start(self) -> None:
            raise FailedError("no start")

    owner = Owner(Broken())
    heard: list[BaseException] = []
    owner.on_failure(heard.append)
    with pytest.raises(FailedError, match="no start"):
        await owner.start()
    assert (owner.released, owner.part.released) == (1, 1)
    assert [str(error) for error in heard] == ["no start"]


async def test_whoever_asks_late_is_told_of_a_failure_at_once() -> None:
    worker = Worker()
    await worker.start()
    worker.fail(FailedError("over"))
    with pytest.raises(FailedError):
        await worker.wait_stopped()
    heard: list[BaseException] = []
    worker.on_failure(heard.append)
    assert [str(error) for error in heard] == ["over"]


def test_failpoints_do_nothing_until_they_are_armed() -> None:
    failpoints.failpoint("test.point")
    failpoints.arm_text("test.point=error:2")
    try:
        failpoints.failpoint("test.point")
        with pytest.raises(failpoints.FailpointError):
            failpoints.failpoint("test.point")
        failpoints.failpoint("test.point")
    finally:
        failpoints.disarm_all()


def test_failpoints_of_the_environment_need_a_permission_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(failpoints.ENVIRONMENT_VARIABLE, "test.point=error")
    for permission in (None, "", "0", "yes"):
        if permission is not None:
            monkeypatch.setenv(failpoints.PERMISSION_VARIABLE, permission)
        with pytest.raises(ConfigurationError, match="PRAVEGA_ALLOW_FAILPOINTS=1"):
            failpoints.arm_from_environment()
        failpoints.failpoint("test.point")
    assert not caplog.records
    monkeypatch.setenv(failpoints.PERMISSION_VARIABLE, "1")
    failpoints.arm_from_environment()
    try:
        with pytest.raises(failpoints.FailpointError):
            failpoints.failpoint("test.point")
    finally:
        failpoints.disarm_all()
    assert "FAILPOINTS ARE ARMED" in caplog.text


def test_failpoints_of_other_processes_are_armed_hit_by_hit(tmp_path: Path) -> None:
    failpoints.arm_text(f"test.point=take:{tmp_path / 'test.point'}")
    try:
        failpoints.failpoint("test.point")
        (tmp_path / "test.point.1").write_text("pass")
        (tmp_path / "test.point.2").write_text("error")
        failpoints.failpoint("test.point")
        with pytest.raises(failpoints.FailpointError):
            failpoints.failpoint("test.point")
        failpoints.failpoint("test.point")
    finally:
        failpoints.disarm_all()
    pid = os.getpid()
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"test.point.{hit}.taken.{pid}" for hit in (1, 2)]


def test_a_hit_can_be_meant_for_one_scope(tmp_path: Path) -> None:
    failpoints.arm_text(f"test.point=take:{tmp_path / 'test.point'}")
    try:
        (tmp_path / "test.point@mine.1").write_text("error")
        (tmp_path / "test.point.1").write_text("pass")
        failpoints.failpoint("test.point", "mine2/stream")
        failpoints.failpoint("test.point", "mine2/stream")
        with pytest.raises(failpoints.FailpointError):
            failpoints.failpoint("test.point", "mine/stream")
        failpoints.failpoint("test.point", "mine")
    finally:
        failpoints.disarm_all()


async def test_a_held_hit_lets_others_go_on(tmp_path: Path) -> None:
    failpoints.arm_text(f"test.point=take:{tmp_path / 'test.point'}")
    try:
        (tmp_path / "test.point.1").write_text("hold")
        (tmp_path / "test.point.2").write_text("hold")
        in_a_coroutine = asyncio.create_task(failpoints.failpoint_async("test.point", "mine"))
        await asyncio.sleep(0)
        in_a_thread = asyncio.create_task(asyncio.to_thread(failpoints.failpoint, "test.point"))
        taken = [tmp_path / f"test.point.{hit}.taken.{os.getpid()}" for hit in (1, 2)]
        await eventually(lambda: all(file.exists() for file in taken), "both hits")
        assert not in_a_coroutine.done()
        assert not in_a_thread.done()
        taken[0].unlink()
        await in_a_coroutine
        assert not in_a_thread.done()
        taken[1].unlink()
        await in_a_thread
    finally:
        failpoints.disarm_all()
