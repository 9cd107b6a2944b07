"""Runs a Spark driver as a child process that can be killed whole: itself, its JVM and its Python workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pravega_common.runtime.failpoints import environment_of
from tests.support.eventually import eventually_blocking
from tests.support.processes import descendants, kill_tree, state_of

REPOSITORY = Path(__file__).parents[2]
hit_time_max_s = 120.0
end_time_max_s = 180.0


class DriverProcess:
    """Runs ``tests.spark.programs.copy_stream``; ``failpoints`` as in ``PRAVEGA_FAILPOINTS``."""

    def __init__(self, given: dict[str, Any], log: Path, failpoints: str = "") -> None:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            **environment_of(failpoints),
        }
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.programs.copy_stream", json.dumps(given)],
                cwd=REPOSITORY,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_stopped_inside(self) -> None:
        """Until one of its processes has stopped itself at a failpoint."""

        def is_hit() -> bool:
            if any(state_of(pid) == "T" for pid in descendants(self._process.pid)):
                return True
            assert self._process.poll() is None, f"the driver ended before the failpoint:\n{self.tail()}"
            return False

        eventually_blocking(is_hit, "the failpoint", hit_time_max_s)

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        kill_tree(self._process.pid)
        self._process.wait()

    def finish(self) -> None:
        try:
            status = self._process.wait(end_time_max_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert status == 0, f"the driver failed:\n{self.tail()}"

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]
