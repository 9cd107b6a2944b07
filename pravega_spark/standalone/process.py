"""Runs a standalone as a child process, for the demo, benchmarks and tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from pravega_common.errors import Unavailable
from pravega_common.services.ports import free_ports
from pravega_spark.standalone.signals import signals_unblocked

start_time_max_s: Final = 90.0
stop_time_max_s: Final = 60.0
poll_s: Final = 0.05
log_tail_chars: Final = 3_000


class StandaloneProcess:
    """A standalone in a process of its own, whose children can be killed. Ports are free ones unless in ``options``.

    ``options`` are command line options by name, ``{"containers": 2, "tier2": "minio"}``, with True for a flag;
    ``python`` is the interpreter whose installation of the package is started, by default this one. Usable as a context
    manager.
    """

    def __init__(self, folder: Path, *, python: Path | None = None, **options: object) -> None:
        self.folder = folder
        self._python = python
        self.ready_file = folder / "ready.json"
        self.log_file = folder / "standalone.log"
        controllers, stores = (int(str(options.get(name, 1))) for name in ("controllers", "segment_stores"))
        # Each kind takes the ports from its first one on.
        ports = free_ports("127.0.0.1", 2 * (controllers + stores))
        firsts = {
            "controller_port": ports[0],
            "rest_port": ports[controllers],
            "segment_store_port": ports[2 * controllers],
            "metrics_port": ports[2 * controllers + stores],
        }
        self.options: dict[str, object] = {**firsts, **options}
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
        return str(self.ready()["controller_uri"])

    @property
    def ca_file(self) -> str:
        """The authority of a standalone with ``tls=True``; empty for another."""
        return str(self.ready().get("ca_file", ""))

    def ready(self) -> dict[str, Any]:
        """Reads the ready file."""
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def pid(self, name: str) -> int:
        """Returns the process id of ``redis``, ``minio``, ``controller`` or ``segment-store-0``…"""
        return int(self.ready()["pids"][name])

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Starts the standalone and returns when everything serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        command = [str(self._python or sys.executable), "-m", "pravega_spark", "standalone"]
        settings = {"data_dir": self.folder / "data", "ready_file": self.ready_file, **self.options}
        for name, value in settings.items():
            flag = f"--{name.replace('_', '-')}"
            command += [flag] if value is True else [flag, str(value)]
        with self.log_file.open("ab") as log, signals_unblocked():
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )
        process = self._process
        _poll(lambda: self.ready_file.exists() or process.poll() is not None, start_time_max_s)
        if not self.ready_file.exists():
            self.stop()
            raise Unavailable(f"the standalone did not start:\n{self.log_tail()}")

    def kill(self, name: str) -> int:
        """Kills one child with SIGKILL and returns the process id it had; the standalone starts it again."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, name: str, old_pid: int, timeout_s: float = 60.0) -> None:
        """Waits until the ready file names another process for the child."""
        if not _poll(lambda: self.pid(name) != old_pid, timeout_s):
            raise Unavailable(f"{name} was not started again within {timeout_s} s:\n{self.log_tail()}")

    def wait(self) -> None:
        """Waits until the standalone ends."""
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int:
        """Ends the standalone with SIGTERM, after a while with SIGKILL, and returns its exit status."""
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
        """Returns the last lines that the standalone and each child logged."""
        logs = [self.log_file, *sorted((self.folder / "data" / "logs").glob("*.log"))]
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-log_tail_chars:]}" for log in logs if log.exists()
        )


def _poll(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Waits until the condition holds; False if it does not in time."""
    polling = Retrying(
        wait=wait_fixed(poll_s),
        stop=stop_after_delay(timeout_s),
        retry=retry_if_result(lambda holds: not holds),
        retry_error_callback=lambda _: False,
    )
    return polling(condition)
