"""Runs the standalone as its users meet it: ready file, signals, children that die, refusals on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable
from pravega_common.services.ports import free_ports
from pravega_common.wire import commands as c
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import cluster, running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.pages import open_page
from tests.support.processes import parent_of
from tests.support.security import tokens_of_standalone
from tests.support.wire_client import WireClient

__all__ = ["cluster"]

wait_max_s = 30.0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_ready_file_names_everything_that_serves(cluster: StandaloneProcess) -> None:
    ready = cluster.ready()
    assert set(ready["pids"]) == {"redis", "segment-store-0", "controller"}
    assert all(is_alive(pid) for pid in ready["pids"].values())
    with open_page(cluster, f"{ready['rest']}/ping") as answer:
        assert answer.status == 200
    with StreamClient(cluster.controller_uri) as client:
        assert "_system" in list(client.controller.list_scopes())


async def test_a_stranger_neither_reads_nor_deletes_what_is_the_controllers(cluster: StandaloneProcess) -> None:
    """Whoever reached the store's port read the whole catalogue and deleted it, and the store stayed ready."""
    scopes = "_system/_tables/scopes"
    port = int(cluster.ready()["segment_stores"][0].rpartition(":")[2])
    stranger = await WireClient.connect(port, ca_file=cluster.ca_file)
    await stranger.call(c.ReadTableKeys(1, scopes, "", 10), c.AuthTokenCheckFailed)
    await stranger.call(c.DeleteTableSegment(2, scopes, False), c.AuthTokenCheckFailed)
    await stranger.call(c.CreateSegment(3, "s/t/0.#epoch.0", 0, 0), c.AuthTokenCheckFailed)
    token = tokens_of_standalone(cluster).internal()
    keys = (await stranger.call(c.ReadTableKeys(4, scopes, token, 10), c.TableKeysRead)).keys
    assert b"_system" in {bytes(key.key) for key in keys}
    await stranger.close()
    assert (cluster.folder / "data" / "cluster.keys").stat().st_mode & 0o077 == 0
    assert all(token not in log.read_text() for log in (cluster.folder / "data" / "logs").glob("*.log"))


def test_the_same_folder_or_port_is_refused_on_the_command_line(cluster: StandaloneProcess, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        command = [sys.executable, "-m", "pravega_spark", "standalone", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr

    free = [str(port) for port in free_ports("127.0.0.1", 4)]
    ports = ["--controller-port", free[0], "--rest-port", free[1], "--segment-store-port", free[2]]
    ports += ["--metrics-port", free[3]]
    assert "in use by process" in refusal("--data-dir", cluster.ready()["data_dir"], *ports)
    taken = cluster.ready()["controller"].rpartition(":")[2]
    assert f"port {taken}" in refusal("--data-dir", str(tmp_path), "--controller-port", taken, *ports[2:])


def test_a_killed_standalone_leaves_no_child_behind_and_starts_again(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as own:
        with StreamClient(own.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                writer.write(b"before", "k")
        pids = own.ready()["pids"].values()
        os.kill(parent_of(own.pid("controller")), signal.SIGKILL)
        own.wait()
        eventually_blocking(lambda: not any(is_alive(pid) for pid in pids), "the end of the children", wait_max_s)
        own.start()
        with StreamClient(own.controller_uri) as client:
            assert [event.data for event in read_events(client, "s", "t")] == [b"before"]


def test_a_folder_is_not_used_beside_a_redis_that_a_killed_standalone_left(tmp_path: Path) -> None:
    """The second one wrote to the same file, and the first one removed its socket when it ended at last."""
    with running_cluster(tmp_path) as own:
        with StreamClient(own.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                writer.write(b"before", "k")
        pids = dict(own.ready()["pids"])
        redis = pids.pop("redis")
        os.kill(redis, signal.SIGSTOP)
        try:
            os.kill(parent_of(redis), signal.SIGKILL)
            own.wait()
            for pid in filter(is_alive, pids.values()):  # they would wait for Redis
                os.kill(pid, signal.SIGKILL)
            eventually_blocking(lambda: not any(map(is_alive, pids.values())), "the end of the others", wait_max_s)
            with pytest.raises(Unavailable, match="in use by what process"):
                own.start()
        finally:
            os.kill(redis, signal.SIGCONT)
        own.start()
        with StreamClient(own.controller_uri) as client:
            assert [event.data for event in read_events(client, "s", "t")] == [b"before"]


def test_two_stores_share_the_containers_and_one_takes_over(tmp_path: Path) -> None:
    with running_cluster(tmp_path, segment_stores=2) as own, StreamClient(own.controller_uri) as client:
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t")
        eventually_blocking(lambda: len(owners(client)) == 2, "containers on both stores", wait_max_s)
        with EventWriter(client, "s", "t") as writer:
            for number in range(100):
                writer.write(b"%d" % number, "k")
            own.kill("segment-store-1")
            for number in range(100, 200):
                writer.write(b"%d" % number, "k")
        events = [event.data for event in read_events(client, "s", "t")]
        assert events == [b"%d" % number for number in range(200)]


def owners(client: StreamClient) -> set[str]:
    """Endpoints that serve some of forty names, which cover every container."""
    return {str(client.controller.endpoint("s", f"name-{number}", 0)) for number in range(40)}


def test_no_redis_runs_when_the_log_is_in_files(tmp_path: Path) -> None:
    with running_cluster(tmp_path, tier1="file") as own:
        assert set(own.ready()["pids"]) == {"segment-store-0", "controller"}
        with StreamClient(own.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                for number in range(300):
                    writer.write(b"%d" % number, "k")
                    if number in (100, 200):
                        writer.flush()
                        child = "segment-store-0" if number == 100 else "controller"
                        own.wait_restarted(child, own.kill(child))
            assert [event.data for event in read_events(client, "s", "t")] == [b"%d" % n for n in range(300)]
        assert own.ready_file.exists()
        assert own.stop() == 0
        assert not own.ready_file.exists()
        own.start()
        with StreamClient(own.controller_uri) as client:
            assert [event.data for event in read_events(client, "s", "t")] == [b"%d" % n for n in range(300)]
        own.stop()
        own.options["tier1"] = "redis"
        with pytest.raises(Unavailable, match="was made with tier1 file, not redis"):
            own.start()


def test_arrow_as_long_term_storage(tmp_path: Path) -> None:
    url = f"arrow:file://{tmp_path}/far"
    with running_cluster(tmp_path, tier1="file", tier2="arrow", tier2_url=url) as own:
        with StreamClient(own.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                writer.write(b"x" * 100_000, "k")  # small ones share an object
        eventually_blocking(lambda: any((tmp_path / "far").glob("c*/d/*/*")), "a chunk", wait_max_s)


def test_any_of_three_plog_servers_may_die(tmp_path: Path) -> None:
    with running_cluster(tmp_path, redis_servers=3) as own, StreamClient(own.controller_uri) as client:
        plog_servers = [f"redis-{number}" for number in range(3)]
        ready = own.ready()
        assert set(ready["pids"]) == {*plog_servers, "redis-cpo", "segment-store-0", "controller"}
        assert len({ready[name] for name in (*plog_servers, "redis-cpo")}) == 4
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t")
        with EventWriter(client, "s", "t") as writer:
            for turn, name in enumerate(plog_servers):
                pid = own.kill(name)
                for number in range(100):
                    writer.write(b"%d" % (100 * turn + number), "k")
                writer.flush()
                own.wait_restarted(name, pid)
        events = [event.data for event in read_events(client, "s", "t")]
        assert events == [b"%d" % number for number in range(300)]
        own.stop()
        own.start()
        with StreamClient(own.controller_uri) as again:
            assert [event.data for event in read_events(again, "s", "t")] == events


@pytest.mark.slow
def test_minio_as_long_term_storage(tmp_path: Path) -> None:
    with running_cluster(tmp_path, tier2="minio") as own:
        assert "minio" in own.ready()["pids"]
        with StreamClient(own.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                for number in range(2_000):
                    writer.write(b"%06d" % number + b"x" * 1_000, "k")
        objects = own.folder / "data" / "minio" / "data"
        eventually_blocking(
            lambda: any(path.is_file() for path in objects.rglob("*/part.*")) or any(objects.rglob("xl.meta")),
            "an object",
            wait_max_s,
        )
        with StreamClient(own.controller_uri) as client:
            assert len(list(read_events(client, "s", "t"))) == 2_000
        assert json.loads((own.folder / "data" / "format.json").read_text())["tier2"] == "minio"
