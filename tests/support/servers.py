"""Runs private real servers for tests: a redis-server and a MinIO on free ports, each in a folder of its own.

A server is stopped by its process id when its context or fixture ends; one that loses the race for its port is started
again on another one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pravega_common.services.ports import free_ports
from pravega_spark.standalone.binaries import find_minio, find_redis
from tests.support.eventually import eventually_blocking

start_timeout_s: Final = 20.0
start_attempts_max: Final = 3
safe_redis_settings: Final = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "auto-aof-rewrite-min-size": "1gb",
    "save": "",
}


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    return free_ports("127.0.0.1", 1)[0]


class _Server:
    """One child process, its folder and its port."""

    program: str = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was not started"
        return self.process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start on the same port as before, keeping the folder; returns when the server answers."""
        for attempt in range(start_attempts_max):
            with (self.folder / "server.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self.command(), cwd=self.folder, env=self.environment(), stdout=log, stderr=subprocess.STDOUT
                )
            if self._wait_ready():
                return
            self.kill()
            if attempt == 0:
                continue
            self.port = free_port()
        raise RuntimeError(f"{self.program} did not start:\n{(self.folder / 'server.log').read_text()[-2000:]}")

    def _wait_ready(self) -> bool:
        assert self.process is not None
        process = self.process
        try:
            eventually_blocking(lambda: process.poll() is not None or self.ready(), self.program, start_timeout_s)
        except TimeoutError:
            return False
        return process.poll() is None

    def stop(self) -> None:
        """Ask the server to end and wait for it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def kill(self) -> None:
        """SIGKILL, as a crash would; the folder stays."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self.process = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart_after_kill(self) -> None:
        """SIGKILL and start again from what is on disk."""
        self.kill()
        self.start()


class RedisServer(_Server):
    """A real redis-server with safe persistence settings; ``settings`` override them by name."""

    program = "redis-server"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self.settings = {**safe_redis_settings, **(settings or {})}

    def command(self) -> list[str]:
        program = str(find_redis())
        options = [part for name, value in self.settings.items() for part in (f"--{name}", value)]
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--daemonize", "no"]
        return [program, *fixed, *options]

    def ready(self) -> bool:
        try:
            return self.call("PING") == b"+PONG"
        except OSError:
            return False

    def call(self, *command: str | int) -> bytes:
        """One command over a connection of its own; returns the answer's raw first 64 KiB without the line end."""
        parts = [str(part).encode() for part in command]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request)
            return connection.recv(65536).removesuffix(b"\r\n")


class MinioServer(_Server):
    """A real MinIO with one folder as its drive; credentials are ``access_key`` and ``secret_key``."""

    program = "minio"
    access_key = "testaccess"
    secret_key = "testsecret"

    def command(self) -> list[str]:
        program = str(find_minio())
        data = self.folder / "data"
        return [program, "server", "--address", self.address, "--console-address", "127.0.0.1:0", str(data)]

    def environment(self) -> dict[str, str]:
        own = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key, "MINIO_BROWSER": "off"}
        return {**os.environ, **own}

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/minio/health/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running_redis(folder: Path, settings: dict[str, str] | None = None) -> Iterator[RedisServer]:
    server = RedisServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def running_minio(folder: Path) -> Iterator[MinioServer]:
    server = MinioServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
