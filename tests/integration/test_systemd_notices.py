"""Listens to the notices of real services as systemd does, and stops a service's loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.notify_socket import NotifySocket
from tests.support.processes import send, state_of

watchdog_s = 2
look_s = 0.05
notice_time_max_s = 30.0


class Systemd:
    """Takes notices all the time: the queue of a socket is short, and a notice that does not fit is lost."""

    def __init__(self, listening: NotifySocket) -> None:
        self.address = listening.address
        self.seen: list[tuple[int, str]] = []
        self._listening = listening
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def listens(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(look_s):
            self.seen += self._listening.senders()

    def of(self, pid: int) -> list[str]:
        """The notices of a process, the oldest first."""
        return [notice for sender, notice in list(self.seen) if sender == pid]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with NotifySocket(str(tmp_path / "notify")) as listening:
        systemd = Systemd(listening)
        with systemd.listens():
            yield systemd


@pytest.fixture
def cluster(tmp_path: Path, systemd: Systemd) -> Iterator[StandaloneProcess]:
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": str(watchdog_s * 1_000_000)}
    options: dict[str, Any] = {"tier1": "file", "containers": 2, "hung_after_s": 0}
    with running_cluster(tmp_path / "cluster", environment=environment, **options) as started:
        yield started


def test_services_say_that_they_are_ready_and_a_stopped_one_keeps_silent(
    cluster: StandaloneProcess, systemd: Systemd
) -> None:
    for name in ("segment-store-0", "controller"):
        pid = cluster.pid(name)
        _wait_for_more(systemd, pid, 1)
        assert systemd.of(pid)[:2] == ["READY=1", "WATCHDOG=1"]
        send(pid, signal.SIGSTOP)
        try:
            _wait_stopped(pid)
            time.sleep(2 * look_s)  # what was sent before is taken
            before = len(systemd.of(pid))
            time.sleep(2 * watchdog_s)  # there is no event: that nothing comes is what is tested
            assert len(systemd.of(pid)) == before
        finally:
            send(pid, signal.SIGCONT)
        _wait_for_more(systemd, pid, before)
    pids = [cluster.pid(name) for name in ("segment-store-0", "controller")]
    cluster.stop()
    eventually_blocking(lambda: all("STOPPING=1" in systemd.of(pid) for pid in pids), "the last notices")


def _wait_for_more(systemd: Systemd, pid: int, count: int) -> None:
    eventually_blocking(lambda: len(systemd.of(pid)) > count, f"notices of {pid}", notice_time_max_s)


def _wait_stopped(pid: int) -> None:
    eventually_blocking(lambda: state_of(pid) == "T", f"{pid} stopped")
