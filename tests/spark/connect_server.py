"""Runs PySpark's own Spark Connect server as a process: the server has the connector, the client has not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.eventually import eventually_blocking
from tests.support.servers import free_port
from tests.support.spark_environment import environment_without_spark

REPOSITORY = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
start_time_max_s = 90.0
stop_time_max_s = 20.0


class ConnectServer:
    """``local[2]``, with ``environment`` added to its own. It begins a session of processes: it is ended whole."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._more = dict(environment or {})
        self._port = free_port()
        self.address = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> ConnectServer:
        configuration = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        command = [str(SPARK_HOME / "sbin" / "start-connect-server.sh"), "--wait"]
        for name, value in configuration.items():
            command += ["--conf", f"{name}={value}"]
        environment = environment_without_spark() | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOG_DIR": str(self._folder),
            "SPARK_PID_DIR": str(self._folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            **self._more,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_open()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _wait_open(self) -> None:
        def is_open() -> bool:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                if self._process.poll() is not None:
                    raise RuntimeError(f"the Spark Connect server did not start:\n{self.tail()}") from None
                return False
            return True

        eventually_blocking(is_open, "the port of the Spark Connect server", start_time_max_s)

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(stop_time_max_s)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "connect-server.log"

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
