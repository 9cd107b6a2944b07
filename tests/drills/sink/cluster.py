"""Runs a standalone Spark cluster from PySpark's own jars: a master, and two workers on hosts of their own.

Two loopback addresses count as two hosts: Spark runs no speculative copy where the first attempt runs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.drills.sink.driver import REPOSITORY, DrillFailed, quick_start
from tests.drills.sink.processes import command_of, kill_session, parent_of, processes_of_session

spark_home = Path(pyspark.__file__).parent
scala_version = next(spark_home.glob("jars/spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
start_time_max_s = 90.0
poll_s = 0.1
hosts = ("127.0.0.2", "127.0.0.3")

spare_host = "127.0.0.1"
"""The driver's own: what runs there fetches from the driver first, and not from a host that is frozen."""
executor_memory_mib = 800
worker_memory_mib = 900


def cluster_configuration(slots: int, jvm: str, *, speculates: bool) -> dict[str, str]:
    """Configures a driver with executors of ``slots`` each. Without speculation, a frozen executor is soon given up."""
    settings = {
        "spark.executor.memory": f"{executor_memory_mib}m",
        "spark.executor.cores": str(slots),
        "spark.executor.extraJavaOptions": f"{quick_start} {jvm}",
        "spark.driver.host": "127.0.0.1",
    }
    if not speculates:
        return settings | {
            "spark.network.timeout": "8s",
            "spark.network.timeoutInterval": "1s",
            "spark.executor.heartbeatInterval": "1s",
        }
    return settings | {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.4",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.efficiency.enabled": "false",
        # What was overtaken may go on: it is not killed while it is stopped.
        "spark.python.task.killTimeout": "60s",
    }


class SparkCluster:
    """Every process of it begins a session, so that it can be found and killed whole."""

    def __init__(self, folder: Path, slots: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._slots = slots
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self._processes = [self._started("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")]
        self._wait_open()
        self._processes += [self._worker(host) for host in hosts]

    @property
    def master(self) -> str:
        return f"spark://{self.address}"

    def stop(self) -> None:
        for process in self._processes:
            kill_session(process.pid)
            process.wait()

    @contextmanager
    def more_room(self) -> Iterator[None]:
        """One executor more, as long as the context lasts."""
        worker = self._worker(spare_host)
        self._processes.append(worker)
        try:
            yield
        finally:
            self._processes.remove(worker)
            kill_session(worker.pid)
            worker.wait()

    @staticmethod
    def executor_of(python_worker: int) -> int:
        """The JVM that runs the tasks of a Python worker."""
        pid = python_worker
        while pid > 1 and "CoarseGrainedExecutorBackend" not in command_of(pid):
            pid = parent_of(pid)
        if pid <= 1:
            raise DrillFailed(f"process {python_worker} has no executor above it")
        return pid

    def executors(self) -> list[int]:
        pids = [pid for process in self._processes for pid in processes_of_session(process.pid)]
        return [pid for pid in pids if "CoarseGrainedExecutorBackend" in command_of(pid)]

    def wait_executors(self, count: int) -> None:
        deadline_s = time.monotonic() + start_time_max_s
        while len(self.executors()) < count:
            if time.monotonic() > deadline_s:
                raise DrillFailed(f"{len(self.executors())} executors of {count} are there:\n{self.tail()}")
            time.sleep(poll_s)

    def tail(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-1_500:] for log in sorted(self._folder.glob("*.log")))

    def _worker(self, host: str) -> subprocess.Popen[bytes]:
        room = ("--cores", str(self._slots), "--memory", f"{worker_memory_mib}m")
        where = ("--host", host, "--webui-port", "0", "--work-dir", str(self._folder / host))
        return self._started("worker.Worker", *where, *room, self.master)

    def _started(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else Path("java")
        command = [str(java), "-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{spark_home}/jars/*"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_SCALA_VERSION": scala_version,  # Else it looks for the folders of a build.
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{name}", *arguments],
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_open(self) -> None:
        host, _, port = self.address.partition(":")
        deadline_s = time.monotonic() + start_time_max_s
        while True:
            try:
                socket.create_connection((host, int(port)), 1.0).close()
                return
            except OSError:
                if time.monotonic() > deadline_s:
                    raise DrillFailed(f"Spark's master does not answer:\n{self.tail()}") from None
                time.sleep(poll_s)
