"""Runs a Spark driver as a child process that copies on demand, and is stopped, killed and let go on from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import pravega_spark.sink.batch_commit
import pravega_spark.sink.direct_writer
import pravega_spark.sink.transaction_writer  # noqa: F401 - these name the failpoints
import tests.drills.sink.hooks  # noqa: F401
from pravega_common.runtime.failpoints import KNOWN
from tests.drills.sink.arming import Failpoints
from tests.drills.sink.copy import Copy
from tests.drills.sink.processes import kill_session, signal_session

REPOSITORY = Path(__file__).parents[3]
quick_python = Path(__file__).with_name("quick_start")
start_time_max_s = 120.0
accept_time_s = 1.0
answer_time_max_s = 120.0
hit_time_max_s = 90.0
poll_s = 0.02
log_tail_chars = 4_000
quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
"""A quick start is worth more to a drill than quick code."""


class DrillFailed(Exception):
    """A step that the point waits for did not happen."""


class Driver:
    """``master`` and ``more`` are Spark's configuration, ``jvm`` options of its JVM beside the drill's own.

    Start is in the background until the first call.
    """

    def __init__(self, folder: Path, master: str, more: Mapping[str, str] | None = None, jvm: str = "") -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.failpoints = Failpoints(folder / "failpoints")
        self._log = folder / "driver.log"
        armed = self.failpoints.environment({name for name in KNOWN if name.startswith(("spark.", "drill."))})
        modules = os.pathsep.join([str(REPOSITORY), str(quick_python)])
        environment = {**armed, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": modules}
        configuration = {
            "spark.master": master,
            "spark.driver.memory": "800m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.streaming.stopTimeout": "20s",
            "spark.driver.extraJavaOptions": f"{quick_start} {jvm}",
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
            **(more or {}),
        }
        address = str(folder / "calls")
        self._listener = Listener(address, "AF_UNIX")
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.drills.sink.driver_main", address, json.dumps(configuration)],
                cwd=REPOSITORY,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._calls: Connection | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, *copies: Copy) -> None:
        """Returns at once; ``result`` waits for the end."""
        self._connected().send(list(copies))

    def result(self) -> list[str | None]:
        """The exception of each query, None without one."""
        answer: list[str | None] = self._answer()
        return answer

    def run(self, *copies: Copy) -> list[str | None]:
        self.begin(*copies)
        return self.result()

    def wait_hit(self, name: str, hit: int = 1, scope: str = "") -> int:
        """The process that came to an armed failpoint."""
        deadline_s = time.monotonic() + hit_time_max_s
        while not (pid := self.failpoints.taken_by(name, hit, scope)):
            if self._connected().poll():
                raise DrillFailed(f"the queries ended before hit {hit} of {name} for {scope}: {self._answer()}")
            self._check(deadline_s, f"hit {hit} of {name} for {scope} did not come")
            time.sleep(poll_s)
        return pid

    def freeze(self) -> None:
        signal_session(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        signal_session(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """It ends by itself, in its time."""
        self._connected()
        self._close()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        kill_session(self.pid)
        self._process.wait()
        self._close()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-log_tail_chars:]

    def _connected(self) -> Connection:
        if self._calls is None:
            self._calls = self._accepted()
            self._calls.recv()
        return self._calls

    def _accepted(self) -> Connection:
        sock = self._listener._listener._socket  # type: ignore[attr-defined]
        sock.settimeout(accept_time_s)
        deadline_s = time.monotonic() + start_time_max_s
        while True:
            try:
                return self._listener.accept()
            except TimeoutError:
                self._check(deadline_s, "no hello")

    def _answer(self) -> Any:
        calls = self._connected()
        deadline_s = time.monotonic() + answer_time_max_s
        while not calls.poll(1.0):
            self._check(deadline_s, "no answer")
        result, failure = calls.recv()
        if failure is not None:
            raise DrillFailed(f"the driver failed: {failure}")
        return result

    def _check(self, deadline_s: float, what: str) -> None:
        if self._process.poll() is not None:
            raise DrillFailed(f"{what}, the driver ended:\n{self.tail()}")
        if time.monotonic() > deadline_s:
            raise DrillFailed(f"{what} in time:\n{self.tail()}")

    def _close(self) -> None:
        if self._calls is not None:
            self._calls.close()
        self._listener.close()
