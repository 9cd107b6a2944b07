"""Doctor ends soon while a part of the cluster stands still, and names the part."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.commands.scratch import make_scratch, scratch_scope
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.processes import send

time_max_s = 30.0
"""All of doctor, on a busy machine; its checks end after 6 s, and the round trip after 8 s."""
well_time_max_s = 120.0
time_to_first_step_s = 5.0
"""From the start of doctor to its round trip, on a busy machine; less than what controllers and stores may take."""
time_to_cut_off_s = 0.5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("doctor")
    with running_cluster(folder, containers=4, controllers=2, segment_stores=2, hung_after_s=0) as started:
        yield started


@contextmanager
def stopped(cluster: StandaloneProcess, name: str) -> Iterator[None]:
    """Afterwards all is well again."""
    pid = cluster.pid(name)
    send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)
        eventually_blocking(lambda: doctor(cluster)["ok"], "a cluster that is well", well_time_max_s)


def doctor(cluster: StandaloneProcess) -> dict[str, Any]:
    command = [sys.executable, "-m", "pravega_spark", "doctor", "--json", "--controller", cluster.controller_uri]
    begun_s = time.monotonic()
    done = subprocess.run(command, env=os.environ, capture_output=True, timeout=2 * time_max_s, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    assert time.monotonic() - begun_s < time_max_s
    return found


def failed(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["check"]: check for check in found["checks"] if check["ok"] is False}


def test_a_redis_that_stands_still(cluster: StandaloneProcess) -> None:
    with stopped(cluster, "redis"):
        found = failed(doctor(cluster))
    assert {"problem: lease-lost", "control plane", "round trip"} <= set(found)
    trip = found["round trip"]
    assert "no end within 8 s, at: making a scope" in trip["detail"]
    assert trip["remedy"] == "see problem lease-lost: look at the Redis or file that cluster.cpo names"


def scratch_scopes(cluster: StandaloneProcess) -> set[str]:
    with StreamClient(cluster.controller_uri) as client:
        return {scope for scope in client.controller.list_scopes() if scope.startswith("doctor-")}


def test_old_scopes_of_earlier_runs_are_removed_and_no_others(cluster: StandaloneProcess) -> None:
    now_s = time.time()
    old, empty, young, used = (scratch_scope(now_s - age_s) for age_s in (3_600, 3_600, 60, 3_600))
    foreign = "doctor-who"
    with StreamClient(cluster.controller_uri) as client:
        for scope in (old, young, used):
            make_scratch(client, scope)
        client.controller.create_stream(used, "mine")
        for scope in (empty, foreign):
            client.controller.create_scope(scope)
    found = doctor(cluster)
    (cleaned,) = [check for check in found["checks"] if check["check"] == "clean-up"]
    assert found["ok"] and cleaned["ok"] and {old, empty} == set(re.findall(r"doctor-[0-9a-f-]+", cleaned["detail"]))
    assert scratch_scopes(cluster) == {young, used, foreign}
    assert not [check for check in doctor(cluster)["checks"] if check["check"] == "clean-up"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that runs the tests in the background has them ignore SIGINT, and so what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_removes_its_scope(cluster: StandaloneProcess, number: signal.Signals) -> None:
    before = scratch_scopes(cluster)
    stores = [cluster.pid(f"segment-store-{index}") for index in range(2)]
    command = [sys.executable, "-m", "pravega_spark", "doctor", "--json", "--controller", cluster.controller_uri]
    for pid in stores:
        send(pid, signal.SIGSTOP)
    try:
        # Controllers answer, and the round trip stands at its first step, which the stores do once they go on.
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(time_to_first_step_s)
        running.send_signal(number)
        time.sleep(time_to_cut_off_s)
    finally:
        for pid in stores:
            send(pid, signal.SIGCONT)
    assert running.wait(time_max_s) != 0
    eventually_blocking(lambda: doctor(cluster)["ok"], "a cluster that is well", well_time_max_s)
    assert scratch_scopes(cluster) == before


def test_a_store_that_stands_still(cluster: StandaloneProcess) -> None:
    with stopped(cluster, "segment-store-0"):
        found = failed(doctor(cluster))
        address = cluster.ready()["segment_stores"][0]
        assert found[f"segment store {address}"]["detail"] == "no end within 6 s"
        assert "it hangs" in found[f"segment store {address}"]["remedy"]
    assert not any(name.startswith("controller") for name in found)


def test_one_of_two_controllers_that_stands_still(cluster: StandaloneProcess) -> None:
    with stopped(cluster, "controller-1"):
        found = failed(doctor(cluster))
        address = cluster.ready()["controller"].split(",")[1]
    assert set(found) == {f"controller {address}"}
