"""Runs the demo's Spark driver as a process group that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Driver:
    """The process of ``spark_job.py``, with all that it starts (JVM, Python workers)."""

    def __init__(self, folder: Path, controller: str, lines: int) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "demo.spark_job", "--folder", str(folder)]
        self._command += ["--controller", controller, "--lines", str(lines)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.folder / "status.json").unlink(missing_ok=True)
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def status(self) -> dict[str, Any]:
        """Reads the driver's last report; empty before the first one."""
        try:
            status: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return status

    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """Kills the whole process group with SIGKILL."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            finally:
                self._process.wait()

    def log_tail(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-3_000:]
