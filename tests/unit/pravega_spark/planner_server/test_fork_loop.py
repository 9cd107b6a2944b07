"""The loop of a server of planners, in a process of its own, with short limits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pravega_spark.planner_server.client import ENDED, LOCK, SOCKET
from tests.support.eventually import eventually_blocking
from tests.support.processes import state_of

answer_max_s: Final = 60.0
SERVER: Final = """
import os, sys, time
from pravega_spark.planner_server.code_stamp import CodeStamp
from pravega_spark.planner_server.fork_loop import ForkLoop
path, jvm, limits, watched = sys.argv[1:]
lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT)
code = CodeStamp({}, [], 0)
code._files = {watched: None}
connection = ForkLoop(os.fsencode(path), lock, os.pidfd_open(int(jvm)), code, **eval(limits)).run()
if connection is not None:
    connection.sendall(b"!")
    os._exit(connection.recv(1)[0])
"""


class Served:
    def __init__(self, folder: Path, limits: str) -> None:
        self.path = folder / "server"
        self.watched = folder / "module.py"
        self.jvm = subprocess.Popen(["sleep", "600"])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.path), str(self.jvm.pid), limits, str(self.watched)]
        )
        eventually_blocking(self._has_begun, "the server", answer_max_s)

    def _has_begun(self) -> bool:
        return self.process.poll() is not None or self.socket_file.exists()

    @property
    def socket_file(self) -> Path:
        return self.path.with_name(self.path.name + SOCKET.decode())

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(answer_max_s)
        made.connect(str(self.socket_file))
        return made

    def ended(self) -> int:
        return self.process.wait(answer_max_s)

    def files(self) -> set[str]:
        return {path.name for path in self.path.parent.iterdir()} - {self.watched.name}

    def close(self) -> None:
        for process in (self.process, self.jvm):
            process.kill()
            process.wait(answer_max_s)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="loop-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def served(folder: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    made = Served(folder, getattr(request, "param", "{}"))
    yield made
    made.close()


def exit_code(answer: bytes) -> int:
    assert answer[:1] == ENDED and len(answer) == 5
    return int.from_bytes(answer[1:], "big", signed=True)


def test_an_end_is_told(served: Served) -> None:
    with served.connect() as connection:
        assert connection.recv(1) == b"!"
        connection.sendall(b"\x07")
        assert exit_code(connection.recv(5)) == 7


@pytest.mark.parametrize("served", ["{'idle_s': 0.01}"], indirect=True)
def test_a_server_that_nobody_needs_ends(served: Served) -> None:
    assert served.ended() == 0
    assert not served.files()


@pytest.mark.parametrize("served", ["{'limit': 1}"], indirect=True)
def test_more_than_the_limit_are_refused(served: Served) -> None:
    with served.connect() as first, served.connect() as second:
        assert first.recv(1) == b"!"
        assert second.recv(1) == b""
        first.sendall(b"\0")
        assert exit_code(first.recv(5)) == 0
    with served.connect() as third:
        assert third.recv(1) == b"!"


def test_a_session_s_end_ends_its_server(served: Served) -> None:
    served.jvm.kill()
    served.jvm.wait(answer_max_s)
    assert served.ended() == 0
    assert not served.files()


@pytest.mark.parametrize("served", ["{'linger_s': 0.01}"], indirect=True)
def test_a_planner_that_outlives_its_session_is_killed(served: Served) -> None:
    with served.connect() as connection:
        assert connection.recv(1) == b"!"
        served.jvm.kill()
        served.jvm.wait(answer_max_s)
        assert exit_code(connection.recv(5)) == -signal.SIGKILL
    assert served.ended() == 0


def test_a_client_that_goes_ends_its_process(served: Served) -> None:
    connection = served.connect()
    assert connection.recv(1) == b"!"
    (child,) = children_of(served.process.pid)
    connection.close()
    eventually_blocking(lambda: state_of(child) == "", "the end of the planner")
    with served.connect() as another:
        assert another.recv(1) == b"!"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_is_refused(served: Served) -> None:
    """The folder keeps others out; this is what would happen if it did not."""
    os.seteuid(12345)
    try:
        with pytest.raises(PermissionError):
            served.connect()
    finally:
        os.seteuid(0)
    served.path.parent.chmod(0o755)
    served.socket_file.chmod(0o777)
    os.seteuid(12345)
    try:
        with served.connect() as connection:
            assert connection.recv(1) == b""
    finally:
        os.seteuid(0)
    with served.connect() as connection:
        assert connection.recv(1) == b"!"


def test_changed_code_ends_a_server_behind_its_planners(served: Served) -> None:
    with served.connect() as first:
        assert first.recv(1) == b"!"
        served.watched.touch()
        with served.connect() as second:
            assert second.recv(1) == b""
        assert not served.files()
        assert served.process.poll() is None
        first.sendall(b"\x03")
        assert exit_code(first.recv(5)) == 3
    assert served.ended() == 0


def test_what_a_killed_server_left_is_removed(folder: Path) -> None:
    """A start that failed a moment ago is remembered."""
    for name in ("old", "new"):
        (folder / f"{name}{SOCKET.decode()}").touch()
        (folder / f"{name}{LOCK.decode()}").touch()
    os.utime(folder / f"old{LOCK.decode()}", (0, 0))
    served = Served(folder, "{}")
    try:
        assert {name.partition(".")[0] for name in served.files()} == {"new", "server"}
    finally:
        served.close()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
