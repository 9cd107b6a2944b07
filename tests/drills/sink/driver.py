"""A Spark driver as a child process that is told what to copy, and is stopped, killed and let go on from outside."""

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

import pravega_spark.batch_commit
import pravega_spark.direct_writer
import pravega_spark.partition_writer  # noqa: F401 - these name the failpoints
import tests.drills.sink.hooks  # noqa: F401
from pravega_common.runtime.failpoints import ENVIRONMENT_VARIABLE, KNOWN
from tests.drills.sink.copy import Copy
from tests.drills.sink.processes import kill_session, signal_session

REPOSITORY = Path(__file__).parents[3]
start_time_max_s = 120.0
accept_time_s = 1.0
answer_time_max_s = 120.0
hit_time_max_s = 90.0
poll_s = 0.02
log_tail_chars = 4_000


class DrillFailed(Exception):
    """What a point needed to see did not happen."""


class Failpoints:
    """Arms the failpoints of other processes, at any time, one hit at a time (``take:`` in ``failpoints``)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def environment(self, names: set[str]) -> dict[str, str]:
        """What a process needs in its environment to obey."""
        return {ENVIRONMENT_VARIABLE: ",".join(f"{name}=take:{self._folder / name}" for name in sorted(names))}

    def arm(self, name: str, action: str, hit: int = 1, counted: int = 0) -> None:
        """At its ``hit``-th time from now on, in whatever process; ``taken_by`` knows of the first ``counted`` hits."""
        for number in range(1, max(hit, counted) + 1):
            file = self._folder / f".{name}.{number}"
            file.write_text(action if number == hit else "pass")
            file.rename(self._folder / f"{name}.{number}")

    def taken_by(self, name: str, hit: int = 1) -> int:
        """The process that came to the hit; 0 if none did yet."""
        found = list(self._folder.glob(f"{name}.{hit}.taken.*"))
        return int(found[0].name.rpartition(".")[2]) if found else 0

    def disarm(self) -> None:
        for file in self._folder.iterdir():
            file.unlink(missing_ok=True)


class Driver:
    """``master`` and ``more`` are Spark's configuration. Start is in the background until the first call."""

    def __init__(self, folder: Path, master: str, more: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.failpoints = Failpoints(folder / "failpoints")
        self._log = folder / "driver.log"
        armed = self.failpoints.environment({name for name in KNOWN if name.startswith(("spark.", "drill."))})
        environment = {**armed, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
        configuration = {
            "spark.master": master,
            "spark.driver.memory": "600m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.streaming.stopTimeout": "20s",
            "spark.python.daemon.module": "tests.drills.sink.warm_daemon",
            # Quick starts are worth more here than quick code.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
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
        """What each query raised, None if nothing."""
        answer: list[str | None] = self._answer()
        return answer

    def run(self, *copies: Copy) -> list[str | None]:
        self.begin(*copies)
        return self.result()

    def wait_hit(self, name: str, hit: int = 1) -> int:
        """The process that came to an armed failpoint."""
        deadline_s = time.monotonic() + hit_time_max_s
        while not (pid := self.failpoints.taken_by(name, hit)):
            if self._connected().poll():
                raise DrillFailed(f"the query ended before {name}: {self._answer()}")
            self._check(deadline_s, f"hit {hit} of {name} did not come")
            time.sleep(poll_s)
        return pid

    def freeze(self) -> None:
        signal_session(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        signal_session(self.pid, signal.SIGCONT)

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
