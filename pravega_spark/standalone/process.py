"""A standalone as a child process, for the demo, benchmarks and tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pravega_common.errors import Unavailable
from pravega_common.services.ports import free_ports
from pravega_spark.standalone.signals import signals_unblocked

start_time_max_s: Final = 90.0
stop_time_max_s: Final = 60.0
poll_s: Final = 0.05
log_tail_chars: Final = 3_000


class StandaloneProcess:
    """Start, look at, hurt and stop a standalone. Ports are free ones unless given in ``options``.

    ``options`` are command line options by name, ``{"containers": 2, "tier2": "minio"}``. Usable as a context manager.
    """

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.log_file = folder / "standalone.log"
        names = ("controller_port", "rest_port", "segment_store_port")
        # The stores take the ports from the last one on.
        ports = free_ports("127.0.0.1", len(names) - 1 + int(str(options.get("segment_stores", 1))))
        self.options: dict[str, object] = {**dict(zip(names, ports, strict=False)), **options}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> StandaloneProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def controller_uri(self) -> str:
        return f"tcp://{self.ready()['controller']}"

    def ready(self) -> dict[str, Any]:
        """What the ready file says now."""
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def pid(self, name: str) -> int:
        """Process id of ``redis``, ``minio``, ``controller`` or ``segment-store-0``…"""
        return int(self.ready()["pids"][name])

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Returns when everything serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pravega_spark", "standalone"]
        settings = {"data_dir": self.folder / "data", "ready_file": self.ready_file, **self.options}
        for name, value in settings.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        with self.log_file.open("ab") as log, signals_unblocked():
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )
        deadline_s = time.monotonic() + start_time_max_s
        while not self.ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.stop()
                raise Unavailable(f"the standalone did not start:\n{self.log_tail()}")
            time.sleep(poll_s)

    def kill(self, name: str) -> int:
        """SIGKILL one child and return the process id it had; the standalone starts it again."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, name: str, old_pid: int, timeout_s: float = 60.0) -> None:
        """Until the ready file names another process for the child."""
        deadline_s = time.monotonic() + timeout_s
        while self.pid(name) == old_pid:
            if time.monotonic() > deadline_s:
                raise Unavailable(f"{name} was not started again within {timeout_s} s:\n{self.log_tail()}")
            time.sleep(poll_s)

    def wait(self) -> None:
        """Until somebody ends the standalone."""
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(timeout=stop_time_max_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def log_tail(self) -> str:
        """The last lines of the standalone and of each child."""
        logs = [self.log_file, *sorted((self.folder / "data" / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-log_tail_chars:]}" for log in logs if log.exists()
        )
