"""Runs a real Pravega 0.13 stand-alone from Maven Central: all in memory, one container, gone when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pravega_common.errors import PravegaError
from pravega_streams.controller.client import ControllerClient
from tests.support.eventually import eventually_blocking
from tests.support.maven import SHORT_LIVED, fetched_jars, java
from tests.support.servers import free_port

POM: Final = Path(__file__).with_name("pom.xml")
start_time_max_s: Final = 120.0
stop_time_max_s: Final = 10.0
heap_bytes_max: Final = 1 << 30
cache_bytes_max: Final = 512 << 20
"""The emulator's own default of 128 MiB kills its container under load."""
opened_packages: Final = ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")


def jar_folder() -> Path:
    """The server's jars, fetched once for a state of ``pom.xml`` and kept in the user's cache folder.

    Raises ``RuntimeError`` with what to do when they cannot be had: these suites fail then, they do not skip.
    """
    return fetched_jars(POM, "real-pravega", "the interop tests need the jars of a real Pravega from Maven Central")


class RealPravega:
    """One server process and its ports. ``controller_uri`` is what a client is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.controller_port = 0
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def controller_uri(self) -> str:
        return f"tcp://127.0.0.1:{self.controller_port}"

    def start(self) -> None:
        """Returns when scopes can be made: the port opens seconds earlier."""
        jars = jar_folder()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(jars), cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        process = self._process
        try:
            eventually_blocking(lambda: process.poll() is not None or self._serves(), "its start", start_time_max_s)
            is_up = process.poll() is None
        except TimeoutError:
            is_up = False
        if not is_up:
            self.stop()
            raise RuntimeError(f"the real Pravega did not start:\n{self.log_tail()}")

    def _command(self, jars: Path) -> list[str]:
        empty = self.folder / "empty.properties"
        empty.touch()
        self.controller_port, store_port = free_port(), free_port()
        settings = {
            "singlenode.configurationFile": empty,
            "singlenode.zk.port": free_port(),
            "singlenode.segmentStore.port": store_port,
            "singlenode.controller.rpc.port": self.controller_port,
            "singlenode.controller.rest.port": free_port(),
            "pravegaservice.admin.gateway.port": free_port(),
            "pravegaservice.rest.listener.port": free_port(),
            "pravegaservice.service.published.host.nameOrIp": "127.0.0.1",
            "pravegaservice.service.published.port": store_port,
            "pravegaservice.service.listener.host.nameOrIp": "127.0.0.1",
            "pravegaservice.request.replyWithStackTraceOnError.enable": "false",
            "pravegaservice.cache.size.max": cache_bytes_max,
        }
        memory = [f"-Xmx{heap_bytes_max}", f"-XX:MaxDirectMemorySize={2 * cache_bytes_max}"]
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opened_packages]
        given = [f"-D{name}={value}" for name, value in settings.items()]
        options = [*SHORT_LIVED, *memory, *opened, *given]
        return [java(), *options, "-cp", f"{jars}/*", "io.pravega.local.LocalPravegaEmulator"]

    def _serves(self) -> bool:
        client = ControllerClient(self.controller_uri, attempts=1, call_time_s=10.0)
        try:
            client.create_scope("ready")
            return client.create_stream("ready", uuid.uuid4().hex)
        except PravegaError:
            return False
        finally:
            client.close()

    def stop(self) -> None:
        """By process id; nothing that it holds is worth a clean end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(stop_time_max_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def _log(self) -> Path:
        return self.folder / "pravega.log"

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


@contextmanager
def running_pravega(folder: Path) -> Iterator[RealPravega]:
    """Stopped when the context ends; on a failure inside, its last lines are in the report."""
    server = RealPravega(folder)
    try:
        server.start()
        yield server
    except BaseException:
        print(server.log_tail())
        raise
    finally:
        server.stop()
