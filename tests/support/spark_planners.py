"""Starts planners of streaming queries as Spark's JVM does, and speaks its side of their protocol."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

from pravega_spark.planner_server.client import SERVER_MODULE, SOCKET, WAIT
from pravega_spark.planner_server.server import PLANNER_ARGUMENTS
from pravega_spark.spark_python import LAUNCHER
from tests.support.eventually import eventually_blocking
from tests.support.processes import parent_of, state_of

answer_max_s: Final = 60.0
wait_ms: Final = 10_000
"""For a server: a busy machine must not look like one without it."""
NONE: Final[Mapping[str, str]] = MappingProxyType({})
SECRET: Final = "a secret of one planner"


class Probe(DataSource):
    """Runs a program in the planner that is to make its reader."""

    def __init__(self, program: str) -> None:
        super().__init__({})
        self.program = program

    def streamReader(self, schema: object) -> Any:
        exec(self.program, {"__name__": "probe"})
        raise SystemExit


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">i", len(data)) + data


class StartedPlanner:
    """One planner, from the start of the launcher to its end."""

    def __init__(self, process: subprocess.Popen[bytes], listener: socket.socket) -> None:
        self.process = process
        self.listener = listener
        self.port: int = listener.getsockname()[1]
        self.pid = 0
        """Zero until it has connected."""

    def run(self, program: str, spark_files: Path) -> None:
        """Let the planner connect, and send it a source that runs a program; ``pid`` is its process from then on."""
        self.listener.settimeout(answer_max_s)
        connection, _ = self.listener.accept()
        connection.settimeout(answer_max_s)
        self.file = connection.makefile("rwb")
        connection.close()
        assert self.file.read(self._int()).decode() == SECRET
        self.file.write(_text("ok"))
        self.file.flush()
        self.pid = self._int()
        self.file.write(_text(f"{sys.version_info[0]}.{sys.version_info[1]}"))
        self.file.write(_text(str(spark_files)) + struct.pack(">i", 0))
        source = cloudpickle.dumps(Probe(program))  # type: ignore[no-untyped-call]
        self.file.write(struct.pack(">i", len(source)) + source)
        self.file.write(_text(json.dumps({"type": "struct", "fields": []})) + struct.pack(">i", 1000))
        self.file.flush()

    def _int(self) -> int:
        found: int = struct.unpack(">i", self.file.read(4))[0]
        return found

    def ended(self) -> tuple[int, str, str]:
        """Exit code and both outputs."""
        output, errors = self.process.communicate(timeout=answer_max_s)
        return self.process.returncode, output.decode(), errors.decode()

    def close(self) -> None:
        self.listener.close()
        if self.pid:
            self.file.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=answer_max_s)


class Planners:
    """Starts planners with the launcher of an environment, from this process, which looks like a JVM."""

    def __init__(self, launcher: Path, folder: Path) -> None:
        """A session in the folder of another one shares all that planners inherit, but for its process."""
        self.launcher = launcher
        self.folder = folder
        self.work = folder / "work"
        self.files = folder / "files"
        self.work.mkdir(exist_ok=True)
        self.files.mkdir(exist_ok=True)
        self.variables = {"TMPDIR": str(folder), "PYTHONPATH": str(self.work), "PYTHONHASHSEED": "0"}
        self.variables[WAIT.decode()] = str(wait_ms)
        self._started: list[StartedPlanner] = []

    def start(self, variables: Mapping[str, str] = NONE, cwd: Path | None = None) -> StartedPlanner:
        listener = socket.create_server(("127.0.0.1", 0))
        own = {
            "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
        }
        process = subprocess.Popen(
            [self.launcher, *PLANNER_ARGUMENTS],
            env={**os.environ, **self.variables, **own, **variables},
            cwd=cwd or self.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        planner = StartedPlanner(process, listener)
        self._started.append(planner)
        return planner

    def running(self, program: str, variables: Mapping[str, str] = NONE, cwd: Path | None = None) -> StartedPlanner:
        """A planner that has a program to run."""
        planner = self.start(variables, cwd)
        planner.run(program, self.files)
        return planner

    def result(self, program: str, variables: Mapping[str, str] = NONE, cwd: Path | None = None) -> Any:
        """What a program prints as JSON."""
        code, output, errors = self.running(program, variables, cwd).ended()
        assert output, (code, errors)
        return json.loads(output)

    def with_server(self, variables: Mapping[str, str] = NONE, cwd: Path | None = None) -> None:
        """Has planners with these variables served: the first one starts the server."""
        before = set(self.sockets())
        self.running("", variables, cwd).ended()
        eventually_blocking(lambda: set(self.sockets()) > before, "a server of planners", answer_max_s)

    @property
    def own_folder(self) -> Path:
        return self.folder / f"pravega-spark-planners-{os.geteuid()}"

    def sockets(self) -> list[Path]:
        return list(self.own_folder.glob(f"*{SOCKET.decode()}"))

    def servers(self) -> list[int]:
        """Processes of servers, by their command line, which planners that they forked have, too."""
        mark = f"\0{SERVER_MODULE}\0{self.own_folder}/".encode()
        found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if mark in command_line(entry)]
        return [pid for pid in found if parent_of(pid) not in found]

    def close(self) -> None:
        for planner in self._started:
            planner.close()
        for pid in self.servers():
            os.kill(pid, signal.SIGKILL)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # It has ended.
        return b""


@contextmanager
def named(name: str) -> Iterator[None]:
    """Gives this process another name, as the kernel shows it."""
    comm = Path("/proc/self/comm")
    before = comm.read_text().strip()
    comm.write_text(name)
    try:
        yield
    finally:
        comm.write_text(before)


@contextmanager
def planners_of_a_session(programs: Path) -> Iterator[Planners]:
    """In a folder with a short name, for the addresses of Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="planners-", dir="/tmp") as folder, named("java"):
        made = Planners(programs / LAUNCHER, Path(folder))
        try:
            yield made
        finally:
            made.close()


def alive(pids: Sequence[int]) -> bool:
    """Whether one of these processes is there and has not ended."""
    return any(state_of(pid) not in ("", "Z", "X") for pid in pids)
