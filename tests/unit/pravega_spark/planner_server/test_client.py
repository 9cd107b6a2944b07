"""The client of a server of planners: what tells servers apart, whom it trusts, and what it falls back from."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from pravega_spark.planner_server import client
from pravega_spark.planner_server.client import (
    WAIT,
    NotServedError,
    ask,
    inherited,
    own_folder,
    own_key,
    request_of,
    require_own_folder,
    session_of,
    start_max_s,
    wait_max_ms,
    wait_max_s,
)
from pravega_spark.planner_server.planner import RefusedError, parsed

PYTHON: Final = sys.executable
ARGUMENTS: Final = ("-m", "a.module")
ENVIRONMENT: Final = {b"HOME": b"/home/user", b"EMPTY": b"", b"BYTES": b"\xff=\n"}
SESSION: Final = b"1234 5678"
limits_max_s: Final = 60.0


def of(
    python: str = PYTHON,
    arguments: tuple[str, ...] = ARGUMENTS,
    environment: dict[bytes, bytes] = ENVIRONMENT,
    session: bytes = SESSION,
) -> bytes:
    return inherited(python, arguments, environment, session)


def test_the_same_is_the_same_in_any_order() -> None:
    assert of() == of(environment=dict(reversed(ENVIRONMENT.items())))


@pytest.mark.parametrize("name", ["PORT", "SECRET", "SOCK_PATH"])
def test_what_spark_gives_each_planner_is_left_out(name: str) -> None:
    found = of(environment={**ENVIRONMENT, f"PYTHON_WORKER_FACTORY_{name}".encode(): b"a value of one"})
    assert found == of() and b"a value of one" not in found


@pytest.mark.parametrize(
    "other",
    [
        lambda: of(environment={**ENVIRONMENT, b"HOME": b"/home/other"}),
        lambda: of(environment={**ENVIRONMENT, b"MORE": b""}),
        lambda: of(environment={b"HOME": b"/home/user", b"EMPTY": b"", b"BYTES": b"\xff"}),
        lambda: of(environment={b"HOME": b"/home/user\0EMPTY=", b"BYTES": b"\xff=\n"}),
        lambda: of(session=b"1234 5679"),
        lambda: of(session=b"12345 678"),
        lambda: of(arguments=("-m", "another.module")),
        lambda: of(arguments=("-m a.module",)),
        lambda: of(python="/bin/sh"),
    ],
)
def test_other_things_given_are_another_server_s(other: Callable[[], bytes]) -> None:
    assert other() != of()


def test_another_working_folder_is_another_server_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.chdir(tmp_path)
    assert of() != before


def test_another_mask_is_another_server_s() -> None:
    before = of()
    mask = os.umask(0o011)
    try:
        assert of() != before
    finally:
        os.umask(mask)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("os.nice(1)", marks=pytest.mark.skipif(os.nice(0) >= 19, reason="started as nice as can be")),
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}) or os.nice(len(os.sched_getaffinity(0)) == 1)",
    ],
)
def test_what_a_process_inherits_otherwise_is_another_server_s(change: str) -> None:
    program = (
        "import os, resource, signal, sys\nfrom pravega_spark.planner_server.client import inherited\n"
        f"one = inherited(sys.executable, [], {{}}, b'')\n{change}\n"
        "assert inherited(sys.executable, [], {}, b'') != one"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=limits_max_s, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_python_is_another_server_s(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("one")
    before = of(python=str(python))
    python.unlink()
    python.write_text("two")
    assert of(python=str(python)) != before


def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    made = own_folder(os.fsencode(tmp_path))
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    assert own_folder(os.fsencode(tmp_path) + b"/") == made
    key = own_key(made)
    assert key == own_key(made) and len(key) == client.key_bytes
    assert stat.S_IMODE(os.stat(made + b"/key").st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o777, 0o500])
def test_a_folder_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(NotServedError):
        require_own_folder(os.fsencode(tmp_path))


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / f"pravega-spark-planners-{os.geteuid()}").symlink_to(tmp_path / "there")
    with pytest.raises(NotServedError):
        own_folder(os.fsencode(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(NotServedError):
        require_own_folder(os.fsencode(tmp_path))


def test_a_half_written_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(NotServedError):
        own_key(os.fsencode(tmp_path))


def test_only_a_jvm_has_a_session() -> None:
    with pytest.raises(NotServedError):
        session_of(os.getpid())


def test_a_request_is_read_as_it_was_written() -> None:
    request = request_of(ARGUMENTS, ENVIRONMENT)
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    assert parsed(request[4:], ARGUMENTS) == ENVIRONMENT


@pytest.mark.parametrize("arguments", [("-m", "b.module"), ("-m",), ("-m", "a.module", "more"), ()])
def test_other_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    """Those behind the first ones would be taken for a variable, which no environment has."""
    request = request_of(arguments, ENVIRONMENT)[4:]
    with pytest.raises(RefusedError):
        parsed(request, ARGUMENTS)


def test_another_version_is_refused() -> None:
    request = request_of(ARGUMENTS, ENVIRONMENT)[4:].replace(client.PROTOCOL, b"pravega-planner-0")
    with pytest.raises(RefusedError):
        parsed(request, ARGUMENTS)


def test_the_time_for_a_server_can_be_named() -> None:
    assert wait_max_s({}) == wait_max_s({WAIT: b""}) == start_max_s
    assert wait_max_s({WAIT: b"1500"}) == 1.5
    for wrong in (b"0", b"-1", b"1.5", b"soon", b"%d" % (wait_max_ms + 1)):
        with pytest.raises(NotServedError):
            wait_max_s({WAIT: wrong})


def test_no_server_and_one_that_refuses_or_says_something_else(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "s")
    assert ask(path, ARGUMENTS, ENVIRONMENT) is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + client.SOCKET)
        assert ask(path, ARGUMENTS, ENVIRONMENT) is None, "nobody listens"
        listener.listen()
        assert ask(path, ARGUMENTS, ENVIRONMENT) is None, "nobody answers in time"
        asked, _ = listener.accept()
        assert asked.recv(1) == b"", "nothing was sent to a server that said nothing"
        asked.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a socket of another user")
def test_a_server_of_another_user_gets_nothing(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + client.SOCKET)
        os.seteuid(12345)  # The kernel keeps the user that listens (unix(7), SO_PEERCRED).
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        listener.settimeout(limits_max_s)
        asked: list[bytes] = []

        def greet() -> None:
            accepted, _ = listener.accept()
            # The client may have left already.
            with accepted, suppress(BrokenPipeError, ConnectionResetError):
                accepted.sendall(client.HELLO)
                asked.append(accepted.recv(1))

        greeting = threading.Thread(target=greet)
        greeting.start()
        assert ask(path, ARGUMENTS, ENVIRONMENT) is None
        greeting.join()
        assert b"".join(asked) == b""


def test_it_imports_nothing_that_is_written_in_python() -> None:
    """Spark waits for it at each query. Modules that are frozen into the interpreter cost next to nothing."""
    program = (
        "import sys\nbefore = set(sys.modules)\nsys.path.append(sys.argv[1])\nimport client\n"
        "specs = [sys.modules[name].__spec__ for name in set(sys.modules) - before]\n"
        "print(*[spec.name for spec in specs if spec.origin.endswith('.py')])"
    )
    folder = Path(client.__file__).parent
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder],
        capture_output=True,
        text=True,
        timeout=limits_max_s,
        check=True,
    )
    assert set(done.stdout.split()) == {"__future__", "client"}
