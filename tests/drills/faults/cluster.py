"""Runs a standalone whose supervisor and servers can be held, and knows the pages of its services."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pravega_spark.standalone.process import StandaloneProcess
from tests.support.eventually import eventually_blocking
from tests.support.processes import parent_of, send, state_of
from tests.support.settable_clocks import SettableClocks

controllers: Final = 2
stores: Final = 2
containers: Final = 4
checkpoint_operations: Final = 200
flush_age_ms: Final = 200
"""Few and little, so that Tier 1 soon forgets what Tier 2 has."""
restart_time_max_s: Final = 90.0
redis_time_max_s: Final = 5.0
page_time_max_s: Final = 5.0
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one": {},
    "three": {"redis_servers": 3},
    "tls": {"tls": True},
    "clock": {},
}
"""Options of the standalones that faults need, beside those that all have."""


@dataclass(frozen=True)
class Page:
    """The HTTP addresses of one service."""

    name: str
    base: str
    job: str

    @property
    def is_controller(self) -> bool:
        return self.job == "pravega-controller"

    @property
    def health(self) -> str:
        return f"{self.base}{'/v1/health' if self.is_controller else '/health'}"

    @property
    def metrics(self) -> str:
        return f"{self.base}/metrics"

    @property
    def window(self) -> str:
        return f"{self.base}/v1/window/cluster"


class FaultCluster:
    """Two stores and two controllers. ``kind``: of ``KINDS``; ``tier2``: ``minio`` or ``dir``."""

    def __init__(self, folder: Path, kind: str, tier2: str) -> None:
        self.tier2 = tier2
        self.standalone = StandaloneProcess(
            folder, controllers=controllers, segment_stores=stores, containers=containers, tier2=tier2, **KINDS[kind]
        )
        self.context: ssl.SSLContext | None = None
        """How the pages' certificates are verified; ``None`` without TLS."""
        self.clocks = SettableClocks(folder) if kind == "clock" else None
        """Those of all services, where they can be set."""
        self._supervisor = 0

    def start(self) -> None:
        """Return when everything serves; this process and its children trust a cluster that speaks TLS."""
        self.standalone.start(
            {
                "PRAVEGA_SEGMENT_STORE_TIER1__CHECKPOINT_OPERATIONS": str(checkpoint_operations),
                "PRAVEGA_SEGMENT_STORE_TIER2__FLUSH_AGE_MS": str(flush_age_ms),
                **({} if self.clocks is None else self.clocks.environment),
            }
        )
        if self.standalone.ca_file:
            os.environ["PRAVEGA_CA_FILE"] = self.standalone.ca_file
            self.context = ssl.create_default_context(cafile=self.standalone.ca_file)
        self._supervisor = parent_of(self.standalone.pid("controller"))

    def stop(self) -> None:
        if self._supervisor:
            self.resume_supervisor()
        self.standalone.stop()
        os.environ.pop("PRAVEGA_CA_FILE", None)

    @property
    def data(self) -> Path:
        return self.standalone.folder / "data"

    def pages(self) -> list[Page]:
        """Controllers first."""
        scheme = "http" if self.context is None else "https"
        bases = [f"{scheme}://{address.removesuffix('/metrics')}" for address in self.standalone.ready()["metrics"]]
        names = [
            *(f"controller-{number}" for number in range(controllers)),
            *(f"store-{number}" for number in range(stores)),
        ]
        jobs = ["pravega-controller"] * controllers + ["pravega-segment-store"] * stores
        return [Page(*parts) for parts in zip(names, bases, jobs, strict=True)]

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to a child, and return its process id."""
        pid = self.standalone.pid(name)
        send(pid, number)
        return pid

    def pause_supervisor(self) -> None:
        """Let nobody start again what dies."""
        send(self._supervisor, signal.SIGSTOP)
        eventually_blocking(lambda: state_of(self._supervisor) == "T", "a supervisor that is held")

    def resume_supervisor(self) -> None:
        send(self._supervisor, signal.SIGCONT)

    def kill_unsupervised(self, *names: str) -> None:
        """Kill children that are not started again before ``resume_supervisor``."""
        self.pause_supervisor()
        for name in names:
            self.signal(name, signal.SIGKILL)

    def redis(self, name: str, *command: str) -> bytes:
        """One command to a Redis of the standalone; returns the first bytes of its answer."""
        request = f"*{len(command)}\r\n" + "".join(f"${len(part)}\r\n{part}\r\n" for part in command)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(redis_time_max_s)
            connection.connect(self.standalone.ready()[name].removeprefix("unix:"))
            connection.sendall(request.encode())
            return connection.recv(4096)

    def restart(self, *names: str) -> None:
        """Kill children and return when they serve again."""
        pids = {name: self.signal(name, signal.SIGKILL) for name in names}
        for name, pid in pids.items():
            self.standalone.wait_restarted(name, pid, restart_time_max_s)

    def serves(self) -> bool:
        """Whether all stores say that they do their work."""
        try:
            for page in self.pages()[controllers:]:
                urllib.request.urlopen(page.health, timeout=page_time_max_s, context=self.context).close()
        except OSError:
            return False
        return True


@contextmanager
def running(folder: Path, kind: str, tier2: str) -> Iterator[FaultCluster]:
    cluster = FaultCluster(folder, kind, tier2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
