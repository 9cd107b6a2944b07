"""Listens on a socket as systemd does, while the loop turns and while it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pravega_common.services.systemd import SystemdNotices
from tests.support.fakes.clock import ManualClock
from tests.support.notify_socket import NotifySocket

watchdog_s = 40


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    with NotifySocket(str(tmp_path / "notify")) as listening:
        yield listening


def environment(address: str, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(watchdog_s * 1_000_000), **more}


async def test_a_service_is_ready_keeps_alive_and_stops(systemd: NotifySocket) -> None:
    clock, alive = ManualClock(), [True]
    notices = SystemdNotices(lambda: alive[0], clock, environment(systemd.address))
    assert systemd.taken() == []
    await notices.start()
    await clock.advance(0)
    assert systemd.taken() == ["READY=1", "WATCHDOG=1"]
    await clock.advance(watchdog_s)
    assert systemd.taken() == ["WATCHDOG=1"] * 4
    alive[0] = False
    await clock.advance(10 * watchdog_s)
    assert systemd.taken() == []
    await notices.stop()
    assert systemd.taken() == ["STOPPING=1"]


@pytest.mark.parametrize("more", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": ""}, {"WATCHDOG_USEC": "soon"}])
async def test_without_a_watchdog_only_the_state_is_sent(systemd: NotifySocket, more: dict[str, str]) -> None:
    clock = ManualClock()
    notices = SystemdNotices(lambda: True, clock, environment(systemd.address, **more))
    await notices.start()
    await clock.advance(10 * watchdog_s)
    await notices.stop()
    assert systemd.taken() == ["READY=1", "STOPPING=1"]


async def test_an_abstract_socket() -> None:
    name = f"pravega-spark-test-{os.getpid()}"
    with NotifySocket(f"\0{name}") as systemd:
        notices = SystemdNotices(lambda: True, ManualClock(), {"NOTIFY_SOCKET": f"@{name}"})
        await notices.start()
        await notices.stop()
        assert systemd.taken() == ["READY=1", "STOPPING=1"]


async def test_a_process_without_systemd_sends_nothing() -> None:
    with capture_logs() as logs:
        notices = SystemdNotices(lambda: True, ManualClock(), {})
        await notices.start()
        await notices.stop()
    assert logs == []


async def test_a_socket_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    with capture_logs() as logs:
        notices = SystemdNotices(lambda: True, clock, environment(str(tmp_path / "gone")))
        await notices.start()
        await clock.advance(watchdog_s)
        await notices.stop()
    assert notices.failure is None and {line["notice"] for line in logs} == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
