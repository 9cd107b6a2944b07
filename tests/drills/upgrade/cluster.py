"""Starts two stores and two controllers of one source tree, and replaces each by the same service of another tree."""

from __future__ import annotations

import json
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from pravega_common.services.ports import free_ports
from pravega_spark.standalone.service_children import write_settings
from tests.drills.store.servers import ServiceProcess
from tests.support.eventually import eventually_blocking
from tests.support.repository import ROOT
from tests.support.servers import RedisServer

containers: Final = 4
ready_time_max_s: Final = 120.0
READY_PATHS: Final = {"store": "/health", "controller": "/v1/health/readiness"}


def unpacked(commit: str, folder: Path) -> Path:
    """The source tree of a commit in a folder of its own; ``ValueError`` for one that git does not know."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), commit], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise ValueError(f"--from {commit}: {made.stderr.strip()}")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return folder


class UpgradeCluster:
    """The processes below one folder; Tier 1 and the control plane in one Redis, Tier 2 in a folder."""

    def __init__(self, folder: Path, code: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._ports = free_ports("127.0.0.1", 8)
        self.controller_uri = f"tcp://127.0.0.1:{self._ports[0]},127.0.0.1:{self._ports[1]}"
        self._pages: dict[str, str] = {}
        self.redis = RedisServer(folder / "redis", {"appendfsync": "always"})
        self.services = [self._store(0), self._store(1), self._controller(0), self._controller(1)]
        self.redis.start()
        for service in self.services:
            service.code = code
            service.start()
        for service in self.services:
            service.wait_open()

    def replace(self, service: ServiceProcess, code: Path) -> None:
        """Stop a service, start it from another tree, and return when it says that it is ready."""
        service.stop()
        service.code = code
        service.start()
        service.wait_open()
        eventually_blocking(lambda: self._is_ready(service), f"readiness of {service.name}", ready_time_max_s)

    def stop(self) -> None:
        for service in reversed(self.services):
            service.kill()
        self.redis.kill()

    def log_tail(self) -> str:
        return "\n".join(f"--- {service.name}\n{service.tail()}" for service in self.services)

    def _is_ready(self, service: ServiceProcess) -> bool:
        try:
            with urllib.request.urlopen(self._pages[service.name], timeout=5) as answer:
                body = json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return False
        return body is True or bool(body.get("ready")) if not isinstance(body, bool) else body

    def _store(self, number: int) -> ServiceProcess:
        name, port, page = f"store-{number}", self._ports[2 + number], f"127.0.0.1:{self._ports[4 + number]}"
        sections: dict[str, dict[str, str | int | bool | list[str]]] = {
            "store": {"id": name, "listen": f"127.0.0.1:{port}", "containers": containers, "metrics": page},
            "cluster": {"cpo": self.redis.address},
            "tier1": {"servers": [self.redis.address], "plog_bytes": 4 << 20, "checkpoint_operations": 100},
            "tier2": {"url": f"file://{self._folder / 'tier2'}", "flush_age_ms": 200},
        }
        self._pages[name] = f"http://{page}{READY_PATHS['store']}"
        settings = write_settings(self._folder / f"{name}.toml", sections)
        return ServiceProcess(name, "segment_service", settings, port, self._folder)

    def _controller(self, number: int) -> ServiceProcess:
        name, port, page = f"controller-{number}", self._ports[number], f"127.0.0.1:{self._ports[6 + number]}"
        sections: dict[str, dict[str, str | int | bool | list[str]]] = {
            "controller": {"listen": f"127.0.0.1:{port}", "rest": page, "containers": containers},
            "cluster": {"cpo": self.redis.address},
        }
        self._pages[name] = f"http://{page}{READY_PATHS['controller']}"
        settings = write_settings(self._folder / f"{name}.toml", sections)
        return ServiceProcess(name, "controller_service", settings, port, self._folder)
