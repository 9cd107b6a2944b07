"""A standalone whose Tier 1 is destroyed comes back from Tier 2: events are counted at a client."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.binaries import find_redis
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.processes import parent_of

keys = 20
events_settled = 4_000
events_hurried = 4_000
wait_max_s = 150.0
"""The metadata table is flushed every 30 s."""
command_time_max_s = 120


def store_command(cluster: StandaloneProcess, command: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    config = cluster.folder / "data" / "conf" / "segment-store-0.toml"
    done = subprocess.run(
        [sys.executable, "-m", "pravega_spark", "store", command, "--config", str(config), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=command_time_max_s,
        check=False,
    )
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
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
        os.kill(pid, signal.SIGKILL)
    cluster.wait()
    eventually_blocking(lambda: not any(is_running(pid) for pid in pids), "the end of the children", 30.0)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def tier1_alone(cluster: StandaloneProcess) -> Iterator[None]:
    """The Redis of a standalone that is stopped, as an operator starts it; a log in files needs none."""
    configuration = cluster.folder / "data" / "conf" / "redis.conf"
    if not configuration.exists():
        yield
        return
    process = subprocess.Popen([str(find_redis()), str(configuration)], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def destroy_tier1(cluster: StandaloneProcess) -> None:
    data = cluster.folder / "data"
    for name in ("redis", "tier1"):
        if (data / name).is_dir():
            shutil.rmtree(data / name)
            (data / name).mkdir()


def restore(cluster: StandaloneProcess) -> list[dict[str, Any]]:
    """Restore all containers; their plans."""
    with tier1_alone(cluster):
        before = store_command(cluster, "restore", status=1)
        assert not before["is_done"]
        done = store_command(cluster, "restore", "--yes")
        plans = [one["plan"] for one in done["containers"]]
        again = store_command(cluster, "restore")
    assert plans == [one["plan"] for one in before["containers"]] and all(plans)
    assert [one["plan"] for one in again["containers"]] == [None] * len(plans)
    return plans


def create_stream(cluster: StandaloneProcess) -> None:
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t", StreamConfiguration(ScalingPolicy.fixed(3)))


def test_a_crash_and_the_loss_of_redis(tmp_path: Path) -> None:
    """The control plane is on that Redis, too. Lost is at most what came after the last flush."""
    with running_cluster(tmp_path) as own:
        create_stream(own)
        write(own, 0, events_settled)
        wait_until_in_tier2(own)
        write(own, events_settled, events_hurried)
        kill_everything(own)
        destroy_tier1(own)
        restore(own)
        own.start()
        found = read(own)
        for key in range(keys):
            assert found[key] == list(range(key, key + keys * len(found[key]), keys))
            assert len(found[key]) >= events_settled // keys
        write(own, 100_000, events_settled)
        for key in range(keys):
            found[key] += range(100_000 + key, 100_000 + events_settled, keys)
        assert read(own) == found
        assert store_command(own, "doctor", "--deep")["is_sound"]


def test_a_clean_stop_and_the_loss_of_a_log_in_files(tmp_path: Path) -> None:
    """The control plane survives. Nothing is lost."""
    with running_cluster(tmp_path, tier1="file") as own:
        create_stream(own)
        write(own, 0, events_settled)
        wait_until_in_tier2(own)
        assert own.stop() == 0
        destroy_tier1(own)
        plans = restore(own)
        assert [plan["shorter"]["count"] + plan["nameless"]["count"] for plan in plans] == [0] * len(plans)
        own.start()
        found = read(own)
        assert found == {key: list(range(key, events_settled, keys)) for key in range(keys)}
        write(own, events_settled, keys)
        assert sum(map(len, read(own).values())) == events_settled + keys
