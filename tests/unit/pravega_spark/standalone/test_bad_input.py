"""Tests that bad options are refused in one sentence, with the value and the remedy, before anything starts."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.ports import free_ports
from pravega_spark.standalone import binaries, data_folder
from pravega_spark.standalone.data_folder import DataFolder
from pravega_spark.standalone.options import StandaloneOptions, Tier1, Tier2
from pravega_spark.standalone.standalone import run_standalone
from segment_service.config import SegmentStoreConfig
from segment_service.tier1_memory import tier1_bytes_needed

LAYOUT = {"containers": 4, "tier2": "dir"}


def options(**changes: object) -> StandaloneOptions:
    controller, rest, store, metrics = free_ports("127.0.0.1", 4)
    ports = {"controller_port": controller, "rest_port": rest, "segment_store_port": store, "metrics_port": metrics}
    return StandaloneOptions(**{**ports, **changes})  # type: ignore[arg-type]


@pytest.fixture
def occupied_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_good_options_pass() -> None:
    options(segment_stores=1, containers=1).validate()


def test_an_occupied_port_is_named_with_its_option(occupied_port: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"port {occupied_port} .* --rest-port"):
        options(rest_port=occupied_port).validate()


def test_one_port_for_two_services() -> None:
    (port,) = free_ports("127.0.0.1", 1)
    with pytest.raises(ConfigurationError, match=f"--rest-port {port} is already given by --controller-port"):
        options(controller_port=port, rest_port=port).validate()


def test_each_controller_takes_a_port_of_its_own() -> None:
    first = free_ports("127.0.0.1", 4)[0]
    given = options(controllers=2, controller_port=first, rest_port=first + 2)
    given.validate()
    assert given.ports[:4] == [first, first + 1, first + 2, first + 3]
    with pytest.raises(ConfigurationError, match=f"--rest-port {first + 1} is already given by --controller-port"):
        options(controllers=2, controller_port=first, rest_port=first + 1).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"containers": 0}, r"--containers 0 is not in 1\.\.1024"),
        ({"segment_stores": 17}, r"--segment-stores 17 is not in 1\.\.16"),
        ({"controllers": 9}, r"--controllers 9 is not in 1\.\.8"),
        ({"host": "::1"}, "--host ::1: give a host name or an IPv4 address, without port"),
        ({"host": "0.0.0.0"}, "--host 0.0.0.0 listens on all addresses: name one .* --published"),
        ({"host": "0.0.0.0", "published": "host:9090"}, "--published host:9090: give a host name"),
        ({"hung_after_s": 3}, "--hung-after-s 3 is not at least 15"),
        ({"hung_after_s": float("nan")}, "--hung-after-s nan is not at least 15"),
        ({"controller_port": 70_000}, r"--controller-port 70000 is not in 1\.\.65535"),
        ({"redis_servers": 2}, "--redis-servers 2: 1, or 3 of which any one may be lost"),
        ({"redis_servers": 3, "tier1": Tier1.FILE}, "--redis-servers goes with --tier1 redis"),
        ({"redis_memory_mib": 512}, "--redis-memory-mib 512 is below 980, .* 4 containers .* fewer --containers"),
        ({"redis_memory_mib": 512, "tier1": Tier1.FILE}, "--redis-memory-mib goes with --tier1 redis"),
        ({"tier2": Tier2.S3}, "--tier2 s3 needs --tier2-url"),
        ({"tier2_url": "http://s3:9000/b"}, "--tier2-url goes with --tier2 s3"),
    ],
)
def test_values_out_of_range(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        options(**changes).validate()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "a" * 64])
def test_a_published_name_that_does_not_resolve(name: str) -> None:
    """Else the services wait for each other at an address that nobody has, until the start fails after a minute."""
    refused = f"^--published {name} does not resolve on this machine .*: correct it, enter it in /etc/hosts, or give"
    with pytest.raises(ConfigurationError, match=refused):
        options(host="0.0.0.0", published=name).validate()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b"])
def test_a_host_that_does_not_resolve(name: str) -> None:
    """No other port and no other process helps, which is what was said of it."""
    with pytest.raises(ConfigurationError, match=f"^--host {name} does not resolve on this machine .*: correct it, "):
        options(host=name).validate()


def test_a_host_of_another_machine() -> None:
    with pytest.raises(ConfigurationError, match=r"^--host 192\.0\.2\.7 is not an address of this machine: give one"):
        options(host="192.0.2.7").validate()  # an address for documents, which no machine has


@pytest.mark.parametrize("name", ["localhost", "127.0.0.2"])
def test_a_published_name_that_resolves(name: str) -> None:
    options(host="0.0.0.0", published=name).validate()


@pytest.mark.parametrize("containers", [1, 4, 1_024])
@pytest.mark.parametrize("changed", [{}, {"STORE__UNFLUSHED_BYTES_MAX": 16 << 20, "TIER1__PLOG_BYTES": 4 << 20}])
def test_a_redis_that_the_store_would_refuse_is_refused_at_once(
    containers: int, changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(f"PRAVEGA_SEGMENT_STORE_{name}", str(value))
    needed_bytes = tier1_bytes_needed(SegmentStoreConfig.from_values({"store": {"containers": containers}}))
    enough = math.ceil(needed_bytes / (1 << 20))
    options(containers=containers, redis_memory_mib=enough).validate()
    with pytest.raises(ConfigurationError, match=f"--redis-memory-mib {enough - 1} is below {enough}, "):
        options(containers=containers, redis_memory_mib=enough - 1).validate()


def test_an_s3_server_needs_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        options(tier2=Tier2.S3, tier2_url="http://s3:9000/b").validate()


def test_a_folder_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    first.open(LAYOUT)
    with pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}"):
        DataFolder(tmp_path / "data").open(LAYOUT)
    first.close()
    DataFolder(tmp_path / "data").open(LAYOUT)


def test_a_folder_in_which_jobs_remember_loads_into_another_cluster(tmp_path: Path) -> None:
    """A backfill has its memory there before this machine has a standalone."""
    memory = tmp_path / "data" / "backfill" / "job"
    memory.mkdir(parents=True)
    folder = DataFolder(tmp_path / "data")
    folder.open(LAYOUT)
    folder.undo()
    assert memory.exists()


def test_a_folder_is_that_of_the_children_that_a_killed_standalone_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "left_over_time_max_s", 0.2)
    killed = DataFolder(tmp_path / "data")
    killed.open(LAYOUT)
    with subprocess.Popen(["true"]) as ended:
        pass
    (killed.root / "lock").write_text(str(ended.pid))
    with subprocess.Popen(["sleep", "60"], pass_fds=[killed.lock_descriptor]) as child:
        try:
            killed.close()
            with pytest.raises(ConfigurationError, match=f"in use by what process {ended.pid} started .*fuser"):
                DataFolder(tmp_path / "data").open(LAYOUT)
            monkeypatch.setattr(data_folder, "left_over_time_max_s", 20.0)
            threading.Timer(0.2, child.terminate).start()
            DataFolder(tmp_path / "data").open(LAYOUT)
        finally:
            child.kill()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    # A file where a folder must be stops root as well, whom permissions do not.
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot be written .* --data-dir"):
        DataFolder(tmp_path / "file" / "data").open(LAYOUT)


def test_a_folder_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(json.dumps({"format": 99, **LAYOUT}))
    with pytest.raises(ConfigurationError, match="has format 99, this version reads up to 2; upgrade"):
        DataFolder(tmp_path).open(LAYOUT)


def test_a_folder_with_another_layout(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.open(LAYOUT)
    folder.close()
    with pytest.raises(ConfigurationError, match="was made with containers 4, not 8"):
        DataFolder(tmp_path).open({**LAYOUT, "containers": 8})


def test_the_number_of_redis_servers_is_part_of_the_layout(tmp_path: Path) -> None:
    (tmp_path / "of_0_1_0").mkdir()
    (tmp_path / "of_0_1_0" / "format.json").write_text(json.dumps({"format": 1, **LAYOUT}))
    for name in ("of_0_1_0", "one"):
        folder = DataFolder(tmp_path / name)
        folder.open({**LAYOUT, "redis_servers": 1})
        folder.close()
        assert json.loads((tmp_path / name / "format.json").read_text())["format"] == 1
        with pytest.raises(ConfigurationError, match="was made with redis_servers 1, not 3"):
            DataFolder(tmp_path / name).open({**LAYOUT, "redis_servers": 3})
    for changes in ({"redis_servers": 3}, {"tier1": "file"}):
        folder = DataFolder(tmp_path / f"with {changes}")
        folder.open({**LAYOUT, **changes})
        folder.close()
        assert json.loads((folder.root / "format.json").read_text())["format"] == 2, "0.1.0 refuses it"
        with pytest.raises(ConfigurationError, match="was made with"):
            DataFolder(folder.root).open({**LAYOUT, "redis_servers": 1, "tier1": "redis"})


def test_the_format_file_is_durable_before_anything_else_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of the machine the data without it would be refused, as of something else."""
    synced: list[str] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    folder = DataFolder(tmp_path / "data")
    folder.open(LAYOUT)
    folder.close()
    assert synced == ["format.json.new", "data"]


def test_a_damaged_format_file(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"format\.json is damaged"):
        DataFolder(tmp_path).open(LAYOUT)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    for name in ("thesis.tex", "photos", "a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "lock").write_text("of somebody else")
    tmp_path.chmod(0o1777)
    with pytest.raises(ConfigurationError, match=r"is not empty .* \(it has a, b, photos\); choose another"):
        DataFolder(tmp_path).open(LAYOUT)
    assert not (tmp_path / "format.json").exists()
    assert (tmp_path / "lock").read_text() == "of somebody else"
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_a_failed_start_leaves_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a folder on which nothing ever ran would be bound to the options that did not work."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data, ready = tmp_path / "data", tmp_path / "ready.json"
    ready.write_text("{}")
    with pytest.raises(ConfigurationError, match="no minio program"):
        asyncio.run(
            run_standalone(options(data_dir=data, tier1=Tier1.FILE, tier2=Tier2.MINIO, containers=1, ready_file=ready))
        )
    assert not ready.exists(), "it would be taken for that of a standalone that serves"
    assert sorted(entry.name for entry in data.iterdir()) == ["lock", "logs"]
    folder = DataFolder(data)
    folder.open(LAYOUT)
    assert folder.is_new
    folder.close()
    again = DataFolder(data)
    again.open(LAYOUT)
    assert not again.is_new


@pytest.mark.parametrize("name", ["absent/ready.json", "file/ready.json", "folder"])
def test_a_ready_file_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    """It is written once all serve, and nothing would be said before."""
    data = tmp_path / "data"
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    wanted = options(data_dir=data, tier1=Tier1.FILE, containers=1, ready_file=tmp_path / name)
    with pytest.raises(ConfigurationError, match=rf"the ready file {tmp_path}/{name} cannot be written \("):
        asyncio.run(run_standalone(wanted))
    assert sorted(entry.name for entry in data.iterdir()) == ["lock"]


def test_missing_servers_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"install redis-server or valkey .*--tier1 file"):
        binaries.find_redis()
    with pytest.raises(ConfigurationError, match=r"scripts/setup --minio.*--tier2 dir"):
        binaries.find_minio()


def test_an_old_redis_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=5.0.7 sha=0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/nowhere")
    monkeypatch.setattr(shutil, "which", lambda name: str(old) if name == "redis-server" else None)
    with pytest.raises(ConfigurationError, match=r"is version 5\.0\.7"):
        binaries.find_redis()
