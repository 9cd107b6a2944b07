"""Operates a standalone as an operator does: store commands, the loss of its servers' data, servers without stores."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.binaries import find_redis
from pravega_spark.standalone.process import StandaloneProcess
from pravega_spark.standalone.redis_and_minio import minio_spec
from pravega_streams import CompositeKey, KeyValueUpdate
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.stream_manager import StreamManager
from segment_service.tables import paging
from tests.support.eventually import eventually_blocking
from tests.support.processes import parent_of

keys = 20
table_keys = paging.keys_in_memory_max + 2_000
table_keys_at_once = 1_000
wait_max_s = 150.0
"""The metadata table is flushed every 30 s."""
command_time_max_s = 300


def store_command(cluster: StandaloneProcess, command: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    config = cluster.folder / "data" / "conf" / "segment-store-0.toml"
    done = subprocess.run(
        [sys.executable, "-m", "pravega_spark", "store", command, "--config", str(config), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=command_time_max_s,
        check=False,
    )
    assert done.returncode == status and done.stdout, f"{done.stdout}\n{done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def write(cluster: StandaloneProcess, first: int, count: int) -> None:
    """Write numbered events and return when all are acknowledged."""
    with StreamClient(cluster.controller_uri) as client, EventWriter(client, "s", "t") as writer:
        for number in range(first, first + count):
            writer.write(b"%d" % number + bytes(500), str(number % keys))


def read(cluster: StandaloneProcess) -> dict[int, list[int]]:
    """The numbers of the events by key, in the order in which they are read."""
    found: dict[int, list[int]] = defaultdict(list)
    with StreamClient(cluster.controller_uri) as client:
        for event in read_events(client, "s", "t"):
            number = int(bytes(event.data).rstrip(b"\0"))
            found[number % keys].append(number)
    return found


def put_table(cluster: StandaloneProcess, generation: int) -> None:
    """Give a key-value table more keys than a store keeps in memory, each with the value of this generation."""
    with StreamManager(cluster.controller_uri) as manager:
        manager.create_key_value_table("s", "table", primary_key_length=1, secondary_key_length=4)
        table = manager.open_key_value_table("s", "table")
        for first in range(0, table_keys, table_keys_at_once):
            some = range(first, min(first + table_keys_at_once, table_keys))
            table.update([KeyValueUpdate(table_key(number), b"%d" % generation) for number in some])


def read_table(cluster: StandaloneProcess) -> list[int]:
    """The generations of all keys, in the order of the keys."""
    with StreamManager(cluster.controller_uri) as manager:
        found = list(manager.open_key_value_table("s", "table").entries())
    assert [entry.key for entry in found] == [table_key(number) for number in range(table_keys)]
    return [int(entry.value) for entry in found]


def table_key(number: int) -> CompositeKey:
    return CompositeKey(b"p", number.to_bytes(4, "big"))


def wait_until_in_tier2(cluster: StandaloneProcess) -> None:
    """Wait until the metadata tables are flushed once more, which is later than the flush of the bytes."""

    def high_waters() -> list[int]:
        return [one["table_high_water"] for one in store_command(cluster, "doctor", "--tier2-only")["containers"]]

    marks = [one["high_water"] for one in store_command(cluster, "doctor", "--tier2-only")["containers"]]
    eventually_blocking(
        lambda: all(now >= mark for now, mark in zip(high_waters(), marks, strict=True)), "the tables", wait_max_s
    )


def kill_everything(cluster: StandaloneProcess) -> None:
    pids = list(cluster.ready()["pids"].values())
    for pid in (parent_of(cluster.pid("controller")), *pids):
        # The children of a parent that is killed are told to end: one may be faster than this.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.wait()
    eventually_blocking(lambda: not any(is_running(pid) for pid in pids), "the end of the children", 30.0)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def servers_alone(cluster: StandaloneProcess) -> Iterator[None]:
    """The Redis servers and the MinIO of a standalone that is stopped, as an operator starts them, without stores."""
    conf = cluster.folder / "data" / "conf"
    commands = [([str(find_redis()), str(one)], dict(os.environ)) for one in sorted(conf.glob("redis*.conf"))]
    minio_folder = cluster.folder / "data" / "minio"
    if minio_folder.is_dir():
        tier2 = urlparse(tomllib.loads((conf / "segment-store-0.toml").read_text())["tier2"]["url"])
        assert tier2.hostname is not None and tier2.port is not None
        spec = minio_spec(minio_folder, cluster.folder / "minio.log", tier2.hostname, tier2.port)
        commands.append((list(spec.command), {**os.environ, **spec.environment}))
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) for command, env in commands]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def destroy_tier1(cluster: StandaloneProcess) -> None:
    """Lose what the Redis servers, that of the control plane too, or the log's files had."""
    data = cluster.folder / "data"
    _empty(*data.glob("redis*"), data / "tier1")


def destroy_tier2(cluster: StandaloneProcess) -> None:
    """Lose the directory of Tier 2, or what MinIO had."""
    data = cluster.folder / "data"
    _empty(data / "tier2", data / "minio" / "data")


def destroy_control_plane(cluster: StandaloneProcess) -> None:
    """Lose the control plane oracle that is a file; another is lost with its Redis (``destroy_tier1``)."""
    _empty(cluster.folder / "data" / "cpo")


def _empty(*folders: Path) -> None:
    for folder in folders:
        if folder.is_dir():
            shutil.rmtree(folder)
            folder.mkdir()


def create_stream(cluster: StandaloneProcess) -> None:
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t", StreamConfiguration(ScalingPolicy.fixed(3)))


class EventLoad:
    """Writes numbered events on a thread of its own until it is stopped."""

    def __init__(self, cluster: StandaloneProcess, first: int) -> None:
        self.written = first
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> EventLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(wait_max_s)

    def _run(self) -> None:
        with StreamClient(self._cluster.controller_uri) as client, EventWriter(client, "s", "t") as writer:
            while not self._stop.is_set():
                for _ in range(keys):
                    writer.write(b"%d" % self.written + bytes(500), str(self.written % keys))
                    self.written += 1
                writer.flush()
                self._stop.wait(0.005)
