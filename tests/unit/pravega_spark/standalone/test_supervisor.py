"""The stages of a start, a child that reads its data for a long time or never serves, and one that has died."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.base import ServiceState
from pravega_spark.standalone.supervisor import (
    ChildSpec,
    Supervisor,
    restart_delay_max_s,
    restart_delay_min_s,
    start_time_max_s,
)
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock

PROGRAM = [sys.executable, "-c", "import signal; signal.pause()"]
FAILS = [sys.executable, "-c", "import sys; sys.exit('the port is used')"]

SLOW_TO_END = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), exit())); print('up', flush=True)\n"
    "while True: signal.pause()",
]


class PassingClock(ManualClock):
    """Sleeping moves it."""

    async def sleep(self, delay_s: float) -> None:
        self._now_s += delay_s
        await asyncio.sleep(0)


def serves() -> bool:
    return True


def spec(
    folder: Path,
    ready: Callable[[], bool] = serves,
    is_loading: Callable[[], bool] | None = None,
    name: str = "child",
    program: list[str] = PROGRAM,
) -> ChildSpec:
    def asked(what: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
        async def answer() -> bool:
            return what()

        return answer

    loads = None if is_loading is None else asked(is_loading)
    return ChildSpec(name, program, folder / f"{name}.log", asked(ready), is_loading=loads)


async def test_a_child_that_loads_its_data_is_waited_for(tmp_path: Path) -> None:
    clock = PassingClock()
    began_s = clock.monotonic_s()
    loaded_s, serves_s = began_s + 10 * start_time_max_s, began_s + 11 * start_time_max_s - 1
    child = spec(tmp_path, lambda: clock.monotonic_s() >= serves_s, lambda: clock.monotonic_s() < loaded_s)
    supervisor = Supervisor([[child]], lambda changed: None, clock)
    await supervisor.start()
    assert clock.monotonic_s() >= serves_s
    await supervisor.stop()


async def test_a_child_that_neither_serves_nor_loads_is_given_up(tmp_path: Path) -> None:
    clock = PassingClock()
    supervisor = Supervisor([[spec(tmp_path, lambda: False, lambda: False)]], lambda changed: None, clock)
    with pytest.raises(ConfigurationError, match="child does not serve after 60 s"):
        await supervisor.start()
    assert supervisor.children[0].process is not None
    assert supervisor.children[0].process.returncode is not None


async def test_children_of_a_stage_start_at_once_behind_those_before_them(tmp_path: Path) -> None:
    """Each child of the second stage serves only beside the other, and looks at who ran when it was asked first."""
    running: dict[str, set[str]] = {}

    def ready(name: str, *beside: str) -> Callable[[], bool]:
        def answer() -> bool:
            running.setdefault(name, set(supervisor.pids()))
            return set(beside) <= set(supervisor.pids())

        return answer

    stages = [
        [spec(tmp_path, ready("server"), name="server")],
        [
            spec(tmp_path, ready("store", "controller"), name="store"),
            spec(tmp_path, ready("controller", "store"), name="controller"),
        ],
    ]
    supervisor = Supervisor(stages, lambda changed: None, PassingClock())
    assert not supervisor.has_served(["server", "store"])
    await supervisor.start()
    assert running["server"] == {"server"}
    assert supervisor.has_served(["store"])
    await supervisor.stop()


async def test_the_failure_of_one_ends_the_start_of_all(tmp_path: Path) -> None:
    children = [
        spec(tmp_path, lambda: False, name="waits"),
        spec(tmp_path, lambda: False, name="fails", program=FAILS),
    ]
    supervisor = Supervisor([children], lambda changed: None)
    with pytest.raises(ConfigurationError, match=r"fails ended with status 1:\nthe port is used"):
        await supervisor.start()
    waits = supervisor.children[0].process
    assert waits is not None and waits.returncode is not None
    assert not supervisor.has_served(["waits", "fails"])


async def test_one_that_came_to_serve_as_the_start_failed_is_known_to_have_served(tmp_path: Path) -> None:
    def is_stopping() -> bool:
        return supervisor.state is ServiceState.STOPPING

    children = [
        spec(tmp_path, is_stopping, name="served"),
        spec(tmp_path, is_stopping, name="fails", program=FAILS),
    ]
    supervisor = Supervisor([children], lambda changed: None)
    with pytest.raises(ConfigurationError, match="fails ended with status 1"):
        await supervisor.start()
    assert supervisor.has_served(["served"])
    assert not supervisor.has_served(["fails"])  # what answers in its place is another process


async def test_a_child_that_died_is_not_started_again_while_the_others_are_stopped(tmp_path: Path) -> None:
    clock = ManualClock()
    slow = spec(tmp_path, name="slow", program=SLOW_TO_END)
    supervisor = Supervisor([[slow, spec(tmp_path, name="dies")]], lambda _: None, clock)
    await supervisor.start()
    dies = supervisor.children[1]
    assert dies.process is not None
    try:
        await eventually(lambda: "up" in slow.log_file.read_text(), "the handler of the first child")
        dies.process.kill()
        await eventually(lambda: bool(clock._sleepers), "the pause before the child is started again")
        stopping = asyncio.ensure_future(supervisor.stop())
        await asyncio.sleep(0.1)  # The stop is with the first child then, which takes longer: nothing tells of that.
        await clock.advance(2 * restart_delay_min_s)
        await stopping
        assert dies.process.returncode is not None, "nothing is left that nobody stops"
    finally:
        if dies.process.returncode is None:
            dies.process.kill()
            await dies.process.wait()


async def test_children_go_on_where_a_restart_cannot_be_announced(tmp_path: Path) -> None:
    announced: list[dict[str, int]] = []

    def changed(running: Supervisor) -> None:
        announced.append(running.pids())
        if len(announced) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", "ready.json.new")

    supervisor = Supervisor([[spec(tmp_path)]], changed, PassingClock())
    await supervisor.start()
    process = supervisor.children[0].process
    assert process is not None
    process.kill()
    await eventually(lambda: len(announced) == 2, "another try to announce the restarted child")
    assert supervisor.is_running
    assert announced[1] == supervisor.pids() != {"child": process.pid}
    await supervisor.stop()


async def test_a_child_that_cannot_be_started_again_takes_nothing_down(tmp_path: Path) -> None:
    """Its folder of logs is gone for a while; a machine that lacks memory for a process is the same."""

    logs = tmp_path / "logs"
    logs.mkdir()
    announced: list[dict[str, int]] = []
    children = [spec(logs, name=name) for name in ("other", "dies")]
    supervisor = Supervisor([children], lambda running: announced.append(running.pids()), ManualClock())
    await supervisor.start()
    other, dies = (child.process for child in supervisor.children)
    assert other is not None
    assert dies is not None
    clock = supervisor._clock
    assert isinstance(clock, ManualClock)
    try:
        logs.rename(tmp_path / "aside")
        dies.kill()
        await eventually(lambda: bool(clock._sleepers), "the pause before the child is started again")
        await clock.advance(restart_delay_min_s)
        await eventually(lambda: bool(clock._sleepers) or not supervisor.is_running, "the pause before another try")
        assert supervisor.is_running
        assert other.returncode is None
        logs.mkdir()
        await clock.advance(restart_delay_max_s)
        await eventually(lambda: bool(announced), "the start of the child")
        assert announced[-1]["dies"] != dies.pid
        assert announced[-1]["other"] == other.pid
    finally:
        await supervisor.stop()
