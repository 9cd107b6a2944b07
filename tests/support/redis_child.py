"""Runs a Redis as the standalone would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from pravega_spark.standalone.supervisor import ChildSpec
from tests.support.eventually import eventually_blocking


@contextmanager
def running_redis(spec: ChildSpec, socket: Path) -> Iterator[tuple[int, Redis]]:
    """The process id of a Redis that is started so, and a client of it."""
    child = subprocess.Popen(spec.command, env={**os.environ, **spec.environment}, stdout=subprocess.DEVNULL)
    try:
        eventually_blocking(socket.exists, "a Redis that listens", 10.0)
        with Redis(unix_socket_path=str(socket)) as redis:
            yield child.pid, redis
    finally:
        child.terminate()
        child.wait()
