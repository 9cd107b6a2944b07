"""Smoke-tests Spark Connect: a client without a JVM, a server that has the connector."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.connect_server import REPOSITORY, ConnectServer
from tests.support.spark_environment import environment_without_spark

client_time_max_s = 240.0


@pytest.fixture(scope="module")
def seen(services: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The client's results; it runs in a process of its own, since the suite's Spark is another kind."""
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(folder) as server:
        given = {
            "address": server.address,
            "controller": services.controller_uri,
            "scope": f"connect-{uuid.uuid4().hex[:8]}",
            "folder": str(folder),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.programs.connect_client", json.dumps(given)],
            cwd=REPOSITORY,
            env=environment_without_spark(),
            capture_output=True,
            text=True,
            timeout=client_time_max_s,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr[-4000:]}\n{server.tail()}"
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def test_batch_write_and_read(seen: dict[str, Any]) -> None:
    assert seen["batch"] == list(range(1000))


def test_threads_write(seen: dict[str, Any]) -> None:
    assert seen["threads"] == list(range(40))


def test_streaming_read_with_a_limit(seen: dict[str, Any]) -> None:
    read = seen["streaming_read"]
    assert read["numbers"] == list(range(1000))
    assert sum(read["sizes"]) == 1000 and max(read["sizes"]) <= 400
    assert read["left"] == [0, 0]


def test_streaming_write_exactly_once(seen: dict[str, Any]) -> None:
    first, second, third = seen["streaming_write"]
    assert (first["sizes"], first["numbers"]) == ([1000], list(range(1000)))
    assert (second["sizes"], second["numbers"]) == ([100], list(range(1100)))
    assert (third["sizes"], third["numbers"]) == ([], list(range(1100)))


def test_envelopes(seen: dict[str, Any]) -> None:
    assert seen["envelope"] == [["a", "x"], ["b", "y"]]


def test_errors_reach_the_client(seen: dict[str, Any]) -> None:
    assert "unknown option 'steam'; did you mean 'stream'?" in seen["refusal"]
