"""Runs one Kafka broker on the loopback interface: KRaft, broker and controller in one process."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.kafka.jars import broker_jars
from tests.support.maven import java
from tests.support.servers import free_port

heap_mib: Final = 1024
"""What Kafka's own start script takes, like the collector's flags below."""
start_attempts_max: Final = 3
start_time_max_s: Final = 60.0
stop_time_max_s: Final = 30.0
format_time_max_s: Final = 60.0
log_tail_chars: Final = 2_000
_COLLECTOR: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class KafkaBroker:
    """Its folder, its ports, its process. Every append is synced to disk before it is answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the Kafka broker was not started")
        return self._process.pid

    def start(self) -> None:
        """An empty broker; returns when it accepts connections. A port that was lost to another is replaced."""
        jars = broker_jars()
        for _ in range(start_attempts_max):
            self._write_settings()
            self._format(jars)
            command = [java(), "-server", f"-Xmx{heap_mib}m", f"-Xms{heap_mib}m", *_COLLECTOR]
            command += ["-Djava.awt.headless=true", *self._class_path(jars), "kafka.Kafka", str(self._settings)]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
            if self._wait_ready():
                return
            self.stop()
            self.port = free_port()
        raise RuntimeError(f"the Kafka broker did not start:\n{self.log_tail()}")

    def stop(self) -> None:
        """By process id."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(stop_time_max_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-log_tail_chars:] if self._log.exists() else ""

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    @staticmethod
    def _class_path(jars: Path) -> list[str]:
        return ["-cp", f"{jars}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

    def _write_settings(self) -> None:
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": self.folder / "log",
            "auto.create.topics.enable": "false",
            # As durable as our own Tier 1: without it an answer means "in the page cache".
            "log.flush.interval.messages": 1,
            "log.segment.delete.delay.ms": 1000,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _format(self, jars: Path) -> None:
        """The folder of a broker is made by Kafka's own tool, which writes the controller's port into it."""
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        command = [java(), *self._class_path(jars), "kafka.tools.StorageTool", "format", "--standalone"]
        command += ["-t", cluster_id(), "-c", str(self._settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=format_time_max_s, check=False)
        if done.returncode:
            raise RuntimeError(f"the folder of a Kafka broker could not be made:\n{done.stdout}{done.stderr}")

    def _wait_ready(self) -> bool:
        deadline_s = time.monotonic() + start_time_max_s
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline_s:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return True
            except OSError:
                time.sleep(0.1)
        return False


def cluster_id() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base 64, not looking like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@contextmanager
def running_broker(folder: Path) -> Iterator[KafkaBroker]:
    """Stopped when the context ends; on a failure inside, its last lines are in the report."""
    broker = KafkaBroker(folder)
    try:
        broker.start()
        yield broker
    except BaseException:
        print(broker.log_tail(), file=sys.stderr)
        raise
    finally:
        broker.stop()
