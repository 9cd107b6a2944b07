"""Starts the processes of a store drill: Redis servers behind proxies, segment stores, a controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pravega_common.services.ports import free_ports
from pravega_spark.standalone.service_children import write_settings
from tests.support.eventually import eventually_blocking
from tests.support.preloaded_library import compiled
from tests.support.proxy import CuttingProxy
from tests.support.repository import ROOT
from tests.support.servers import RedisServer

T = TypeVar("T")

containers: Final = 4
stores: Final = 2
start_time_max_s: Final = 60.0
stop_time_max_s: Final = 30.0
lease_ms: Final = 2_000
checkpoint_operations: Final = 100
small_disk_room_bytes: Final = 32 * 1024 * 1024
loss_words: Final = ("lost", "older copy")
"""By them the reason of a container that does not start is known for lost data."""


class RecordedRedis(RedisServer):
    """A Redis whose syncs are written down, so that its power can be cut."""

    def __init__(self, folder: Path, library: Path, settings: dict[str, str]) -> None:
        super().__init__(folder, settings)
        self._library = library
        self._record = folder / "synced.txt"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(self._library), "SYNC_RECORD": str(self._record)}

    @property
    def is_dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def cut_power(self) -> int:
        """End the process at once and take from its files what was not synced; returns how many bytes that were."""
        self.kill()
        synced: dict[Path, int] = {}
        for line in self._record.read_text().splitlines():
            synced_bytes, _, name = line.partition(" ")
            synced[Path(name)] = int(synced_bytes)
        lost = 0
        for path, size in synced.items():
            if path.exists() and ".aof" in path.name and path.stat().st_size > size:
                lost += path.stat().st_size - size
                os.truncate(path, size)
        self._record.write_text("")
        return lost


@contextmanager
def small_disk(server: RecordedRedis) -> Iterator[Path | None]:
    """Let the server have its folder on a tmpfs with little room; ``None`` where mounting one is not permitted."""
    folder, kept = server.folder, server.folder.with_name(f"{server.folder.name}-kept")
    server.kill()
    shutil.copytree(folder, kept)
    used = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    mount = ["mount", "-t", "tmpfs", "-o", f"size={used + small_disk_room_bytes}", "tmpfs", str(folder)]
    is_mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        if is_mounted:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        server.start()
        yield folder if is_mounted else None
    finally:
        if is_mounted:
            server.kill()
            shutil.rmtree(kept)
            shutil.copytree(folder, kept)
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
            shutil.copytree(kept, folder, dirs_exist_ok=True)
            server.start()
        shutil.rmtree(kept)


class LoopThread:
    """An event loop on a thread of its own, for the proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(start_time_max_s)

    def call(self, work: Callable[[], None]) -> None:
        async def calling() -> None:
            work()

        self.run(calling())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class ServiceProcess:
    """A store or controller that listens on a port of its own."""

    def __init__(self, name: str, package: str, settings: Path, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.code = ROOT
        """The source tree that the next start runs."""
        self._command = [sys.executable, "-m", package, "--config", str(settings)]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once; ``wait_open`` when it listens."""
        with self._log.open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(self.code)}
            self._process = subprocess.Popen(
                self._command, cwd=self.code, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_open(self) -> None:
        def is_open() -> bool:
            assert self._process is not None and self._process.poll() is None, f"{self.name} ended:\n{self.tail()}"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                return False
            return True

        eventually_blocking(is_open, f"an open port of {self.name}", start_time_max_s)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it with SIGTERM, as an operator does, and wait until it has; SIGKILL if it does not."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(stop_time_max_s)
            process.kill()
            process.wait()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:] if self._log.exists() else ""


class DrillCluster:
    """All processes below one folder. Stores reach the Redis servers of Tier 1 through proxies."""

    def __init__(self, folder: Path, *, redis_servers: int = 1, appendfsync: str = "always") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.tier2 = folder / "tier2"
        library = compiled(Path(__file__).with_name("sync_record.c"), folder)
        unsafe = appendfsync != "always"
        settings = {"appendfsync": appendfsync}
        self.redis = [RecordedRedis(folder / f"redis-{n}", library, settings) for n in range(redis_servers)]
        self.cpo = self.redis[0] if redis_servers == 1 else RecordedRedis(folder / "redis-cpo", library, settings)
        self._loop = LoopThread()
        self.proxies = [CuttingProxy(server.address) for server in self.redis]
        ports = free_ports("127.0.0.1", 2 + 2 * stores)
        self.controller_uri = f"tcp://127.0.0.1:{ports[0]}"
        self._metrics = [f"127.0.0.1:{port}" for port in ports[2 + stores :]]
        for server in {*self.redis, self.cpo}:
            server.start()
        for proxy in self.proxies:
            self._loop.run(proxy.start())
        self.stores = [self._store(number, ports[2 + number], unsafe) for number in range(stores)]
        self.controller = self._controller(ports[0], ports[1], unsafe)
        for service in (*self.stores, self.controller):
            service.start()
        for service in (*self.stores, self.controller):
            service.wait_open()

    def on_proxies(self, work: Callable[[CuttingProxy], None], proxies: list[CuttingProxy] | None = None) -> None:
        """Do something to the proxies on their own loop."""
        for proxy in self.proxies if proxies is None else proxies:
            self._loop.call(lambda proxy=proxy: work(proxy))  # type: ignore[misc]

    def damaged_segments(self) -> set[str]:
        """Segments that the health pages of the stores call damaged."""
        found: set[str] = set()
        for address in self._metrics:
            found |= {item["segment"] for item in _health(address).get("damaged_segments", [])}
        return found

    def losses(self) -> list[str]:
        """Reasons that stores give for containers that do not start, as far as they say that data was lost."""
        reasons: list[str] = []
        for address in self._metrics:
            with contextlib.suppress(OSError):
                states = _health(address)["containers"].values()
                given = [state.get("reason", "") for state in states]
                reasons += [reason for reason in given if any(word in reason for word in loss_words)]
        return reasons

    def stop(self) -> None:
        for service in (self.controller, *self.stores):
            service.kill()
        for proxy in self.proxies:
            self._loop.run(proxy.stop())
        self._loop.stop()
        for server in {*self.redis, self.cpo}:
            server.kill()

    def log_tail(self) -> str:
        services = (*self.stores, self.controller)
        return "\n".join(f"--- {service.name}\n{service.tail()}" for service in services)

    def _store(self, number: int, port: int, unsafe: bool) -> ServiceProcess:
        name = f"store-{number}"
        sections: dict[str, dict[str, str | int | bool | list[str]]] = {
            "store": {
                "id": name,
                "listen": f"127.0.0.1:{port}",
                "containers": containers,
                "metrics": self._metrics[number],
            },
            "cluster": {"cpo": self.cpo.address, "lease_ms": lease_ms},
            "tier1": {
                "servers": [proxy.address for proxy in self.proxies],
                "plog_bytes": 4 << 20,
                "checkpoint_bytes": 1 << 20,
                "checkpoint_operations": checkpoint_operations,
                "allow_unsafe_redis": unsafe,
            },
            "tier2": {"url": f"file://{self.tier2}", "flush_age_ms": 200},
        }
        settings = write_settings(self.folder / f"{name}.toml", sections)
        return ServiceProcess(name, "segment_service", settings, port, self.folder)

    def _controller(self, port: int, rest_port: int, unsafe: bool) -> ServiceProcess:
        sections: dict[str, dict[str, str | int | bool | list[str]]] = {
            "controller": {
                "listen": f"127.0.0.1:{port}",
                "rest": f"127.0.0.1:{rest_port}",
                "containers": containers,
            },
            "cluster": {"cpo": self.cpo.address, "lease_ms": lease_ms, "allow_unsafe_redis": unsafe},
        }
        settings = write_settings(self.folder / "controller.toml", sections)
        return ServiceProcess("controller", "controller_service", settings, port, self.folder)


def _health(address: str) -> dict[str, Any]:
    """What a store says of itself; one that is not ready says it with status 503."""
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))
