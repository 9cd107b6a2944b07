"""Uses a standalone with TLS: clients, commands, REST, and peers that come without."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pravega_common.runtime.client_tls import ClientTls
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.async_client import AsyncStreamClient
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.stream_manager import StreamManager
from tests.support.certificates import Authority
from tests.support.cluster import running_cluster

SCOPE = "tls"
command_time_max_s = 60
events_count = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    why = "without users, and without a file of authorities in the environment"
    options: dict[str, Any] = {"tls": True, "segment_stores": 2, "controllers": 2}
    with running_cluster(tmp_path_factory.mktemp("tls"), as_is=why, **options) as started:
        yield started


@pytest.fixture(scope="module")
def manager(cluster: StandaloneProcess) -> Iterator[StreamManager]:
    with StreamManager(cluster.controller_uri, ca_file=cluster.ca_file) as made:
        made.create_scope(SCOPE)
        yield made


def test_events_are_written_and_read(manager: StreamManager) -> None:
    manager.create_stream(SCOPE, "events", 3)
    with manager.create_writer(SCOPE, "events") as writer:
        for number in range(events_count):
            writer.write(str(number).encode() * 1_000, f"key {number % 20}")
    writing = manager.create_transaction_writer(SCOPE, "events").begin()
    writing.write(b"last", "key")
    writing.commit()
    manager.seal_stream(SCOPE, "events")
    group = manager.create_reader_group(SCOPE, "group", ["events"])
    with group.create_reader("one") as reader:
        found = [bytes(event) for event in reader]
    assert sorted(found) == sorted([*(str(number).encode() * 1_000 for number in range(events_count)), b"last"])


async def test_the_clients_of_an_event_loop(cluster: StandaloneProcess, manager: StreamManager) -> None:
    manager.create_stream(SCOPE, "asynchronous", 1)
    with manager.create_writer(SCOPE, "asynchronous") as writer:
        writer.write(b"event", "key")
    async with AsyncStreamClient(cluster.controller_uri, ca_file=cluster.ca_file) as client:
        group = await client.create_reader_group(SCOPE, "loop", ["asynchronous"])
        reader = await group.create_reader("one")
        async with reader:
            async for event in reader.events():
                assert bytes(event.data) == b"event"
                break


def test_a_client_that_does_not_compare_names(cluster: StandaloneProcess, manager: StreamManager) -> None:
    manager.create_stream(SCOPE, "names", 1)
    with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file, verify_host=False) as client:
        assert client.tail_cut(SCOPE, "names") == {0: 0}


def run_command(cluster: StandaloneProcess, *arguments: str) -> bytes:
    environment = {**os.environ, "PRAVEGA_CONTROLLER": cluster.controller_uri, "PRAVEGA_CA_FILE": cluster.ca_file}
    done = subprocess.run(
        [sys.executable, "-m", "pravega_spark", *arguments],
        env=environment, capture_output=True, timeout=command_time_max_s, check=True,
    )  # fmt: skip
    return done.stdout


def test_commands_take_the_authority_from_the_environment(cluster: StandaloneProcess, manager: StreamManager) -> None:
    manager.create_stream(SCOPE, "listed", 1)
    assert "listed" in run_command(cluster, "stream", "list", SCOPE).decode()


def test_commands_find_the_authority_of_a_standalone_in_the_default_folder(
    cluster: StandaloneProcess, tmp_path: Path
) -> None:
    environment = {**os.environ, "PRAVEGA_CONTROLLER": cluster.controller_uri, "XDG_DATA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pravega_spark", "stream", "list"]
    alone = subprocess.run(command, env=environment, capture_output=True, timeout=command_time_max_s, check=False)
    assert alone.returncode == 1
    said = alone.stderr.decode()
    assert said.count("\n") == 1 and "PRAVEGA_CA_FILE" in said
    (tmp_path / "pravega-spark").symlink_to(cluster.ready()["data_dir"])
    subprocess.run(command, env=environment, capture_output=True, timeout=command_time_max_s, check=True)
    for words in (
        f"stream create {SCOPE}/found",
        f"event write {SCOPE}/found",
        f"event read {SCOPE}/found --from 12h",
        f"stream list {SCOPE} --sizes --events --rates --lag",
        f"stream info {SCOPE}/found --events --rates",
        f"stream cut {SCOPE}/found 12h",
        f"stream truncate {SCOPE}/found --before 12h --dry-run",
        f"stream retain {SCOPE}/found --bytes 1 --once --dry-run",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pravega_spark", *words.split()],
            env=environment,
            input=b"one\n",
            capture_output=True,
            timeout=command_time_max_s,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)


def test_the_doctor_goes_over_tls(cluster: StandaloneProcess) -> None:
    said = run_command(cluster, "doctor", "--json")
    findings = {item["check"]: item for item in json.loads(said)["checks"]}
    assert all(item["ok"] for name, item in findings.items() if name.startswith("controller"))
    assert findings["round trip"]["ok"] and findings["problems"]["ok"]
    assert findings["security: TLS"]["ok"] and findings["security: keys of the cluster"]["ok"]
    assert findings["security: authentication"]["ok"] is None
    assert findings["security: profile"]["detail"] == "dev: prod would ask for authentication"


def test_rest_speaks_tls(cluster: StandaloneProcess) -> None:
    url, context = f"https://{cluster.ready()['rest']}/v1/scopes", ClientTls.from_file(cluster.ca_file).context
    with urllib.request.urlopen(url, context=context, timeout=10) as answer:
        assert "scopes" in json.load(answer)


def ports_of(cluster: StandaloneProcess) -> list[tuple[str, int]]:
    ready = cluster.ready()
    addresses = [*ready["controller"].split(","), ready["rest"], *ready["segment_stores"]]
    return [(address.rpartition(":")[0], int(address.rpartition(":")[2])) for address in addresses]


def test_every_port_refuses_a_peer_without_tls(cluster: StandaloneProcess) -> None:
    for address in ports_of(cluster):
        with socket.create_connection(address, timeout=10) as plain:
            plain.sendall(b"GET /v1/scopes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            try:
                while received := plain.recv(4_096):
                    answer += received
            except ConnectionResetError:
                pass
        # At most an alert of TLS.
        assert answer[:1] in (b"", b"\x15") and len(answer) < 20


def test_every_port_refuses_a_client_that_trusts_somebody_else(cluster: StandaloneProcess, tmp_path: Path) -> None:
    context = ClientTls.from_file(Authority(tmp_path, "another authority").file).context
    for address in ports_of(cluster):
        with socket.create_connection(address, timeout=10) as plain, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(plain, server_hostname=address[0])


def test_certificates_survive_a_restart_of_a_store(cluster: StandaloneProcess, manager: StreamManager) -> None:
    manager.create_stream(SCOPE, "restarted", 1)
    with manager.create_writer(SCOPE, "restarted") as writer:
        writer.write(b"before", "key")
        old = cluster.kill("segment-store-0")
        cluster.wait_restarted("segment-store-0", old)
        writer.write(b"after", "key")
    with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file) as client:
        assert [event.data for event in read_events(client, SCOPE, "restarted")] == [b"before", b"after"]
