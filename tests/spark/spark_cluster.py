"""Runs a Spark standalone cluster: a master and workers as processes of their own, as PySpark ships them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

from tests.support.eventually import eventually_blocking
from tests.support.processes import descendants, kill_tree
from tests.support.servers import free_port
from tests.support.spark_environment import JVM_OPTIONS, environment_without_spark

SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
start_time_max_s = 120.0
executor_class = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """Each worker has one core and room for one executor. All its processes end with it."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._page = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = f"spark://{HOST}:{free_port()}"

    def __enter__(self) -> SparkCluster:
        at = ["--host", HOST]
        self._start(
            "master", "master.Master", *at, "--port", self.url.rpartition(":")[2], "--webui-port", str(self._page)
        )
        for number in range(self._workers):
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}")]
            self._start(f"worker-{number}", "worker.Worker", self.url, *at, *room, "--webui-port", str(free_port()))
        try:
            eventually_blocking(self._is_complete, "the workers at the master", start_time_max_s)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def executors(self) -> list[int]:
        """The process ids of the executors that run, and have a Python worker that works for them."""
        below = [pid for process in self._processes for pid in descendants(process.pid)]
        return [pid for pid in below if executor_class in command_of(pid) and _has_python(pid)]

    def kill_executor(self, pid: int) -> None:
        assert executor_class in command_of(pid)
        os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, java_class: str, *arguments: str) -> None:
        kept = environment_without_spark("PYTHON")
        quick = {"SPARK_DAEMON_JAVA_OPTS": kept.pop(JVM_OPTIONS, ""), "SPARK_DAEMON_MEMORY": "256m"}
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{java_class}", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    cwd=self._folder,
                    env={**kept, **quick, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _is_complete(self) -> bool:
        assert all(process.poll() is None for process in self._processes), f"a process ended: see {self._folder}"
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
        except OSError:
            return False
        except json.JSONDecodeError:  # the master opens its port before it serves this path: a page comes until then
            return False
        return [worker["state"] for worker in state["workers"]].count("ALIVE") == self._workers

    def _end(self) -> None:
        for process in reversed(self._processes):
            kill_tree(process.pid)
            process.wait()
        self._processes.clear()


def command_of(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _has_python(pid: int) -> bool:
    """A Python worker below the daemon that forks them."""
    return sum("pyspark" in command_of(child) for child in descendants(pid)) > 1
