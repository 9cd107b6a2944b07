"""Runs the recipe for clusters as it is written, on a master and two workers, with an executor killed in the middle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from tests.spark.spark_cluster import HOST, SPARK_HOME, SparkCluster
from tests.support.eventually import eventually_blocking
from tests.support.processes import kill_tree
from tests.support.repository import ROOT
from tests.support.spark_environment import environment_without_spark
from tests.support.wheel import build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "spark-source-and-sink.md"
PROGRAM = ROOT / "tests" / "spark" / "programs" / "cluster_job.py"
pack_time_max_s = 300.0
job_time_max_s = 300.0
events_copied = 20_000
files, rows_per_file = 8, 40_000


def recipe() -> tuple[str, list[str]]:
    """The lines of the page that pack the environment, and its commands that submit a job."""
    section = PAGE.read_text().partition("### A.8 Clusters")[2].partition("\n### ")[0]
    pack, submit = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return pack, [line for line in submit.replace("\\\n", "").splitlines() if line.strip()]


class Desk:
    """A folder of a user with the packed environment, from which jobs are submitted to a cluster."""

    def __init__(self, folder: Path, controller: str, cluster: SparkCluster) -> None:
        self.folder = folder
        self.controller = controller
        self.cluster = cluster
        self._jobs: list[subprocess.Popen[bytes]] = []
        kept = environment_without_spark("PYTHON")
        path = os.pathsep.join([str(SPARK_HOME / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**kept, "PATH": path, "MASTER": cluster.url, "PRAVEGA_CONTROLLER": controller}
        self._environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST}

    def close(self) -> None:
        """Ends the jobs that a test left behind."""
        for process in self._jobs:
            if process.poll() is None:
                kill_tree(process.pid)
            process.wait()

    def run(self, command: str, timeout_s: float) -> None:
        assert self.start(command, "pack").wait(timeout_s) == 0, self.log("pack")

    def start(self, command: str, name: str) -> subprocess.Popen[bytes]:
        """Runs commands in this folder; what they print is in the log of that name."""
        with (self.folder / f"{name}.log").open("wb") as log:
            shell = ["sh", "-e", "-c", command]
            process = subprocess.Popen(
                shell, cwd=self.folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._jobs.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def finish(self, process: subprocess.Popen[bytes], name: str) -> str:
        """The log of a job that must succeed, and must have lost an executor."""
        assert process.wait(job_time_max_s) == 0, self.log(name)[-6000:]
        log = self.log(name)
        assert re.search(r"Lost executor \d", log), log[-6000:]
        return log

    def events(self, scope: str, stream: str) -> list[bytes]:
        with StreamClient(self.controller) as client:
            return [event.data for event in read_events(client, scope, stream)]


@pytest.fixture(scope="module")
def desk(services: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "sources").mkdir()
    (folder / "dist").mkdir()
    shutil.copy(build_wheel(folder / "sources"), folder / "dist")
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        made = Desk(folder, services.controller_uri, cluster)
        try:
            made.run(recipe()[0], pack_time_max_s)
            yield made
        finally:
            made.close()


def test_source_and_sink_with_an_executor_killed_inside_a_task(desk: Desk) -> None:
    scope = f"scope-{uuid.uuid4().hex[:8]}"
    export, job, _ = recipe()[1]
    shutil.copy(PROGRAM, desk.folder / "job.py")
    process = desk.start(f"{export}\n{job} {scope} {events_copied} {desk.folder}", "copy")
    fuse = desk.folder / "fuse"

    def is_lit() -> bool:
        assert process.poll() is None, desk.log("copy")[-6000:]
        return fuse.exists()

    eventually_blocking(is_lit, "the task that waits", job_time_max_s)
    desk.cluster.kill_executor(int(fuse.read_text()))
    log = desk.finish(process, "copy")
    expected = Counter(b"%06d" % number for number in range(events_copied))
    assert Counter(desk.events(scope, "in")) == expected
    assert Counter(desk.events(scope, "out")) == expected
    assert int(log.rpartition("BATCHES ")[2].split()[0]) >= 4


@pytest.mark.long
def test_backfill_with_an_executor_killed_while_it_loads(desk: Desk) -> None:
    lines = Counter[bytes]()
    (desk.folder / "data").mkdir()
    for number in range(files):
        rows = [b"%02d-%06d" % (number, row) for row in range(rows_per_file)]
        (desk.folder / "data" / f"{number}.txt").write_bytes(b"\n".join(rows) + b"\n")
        lines.update(rows)
    export, _, backfill = recipe()[1]
    process = desk.start(f"{export}\n{backfill}", "backfill")
    victims: list[int] = []

    def is_loading() -> bool:
        assert process.poll() is None, desk.log("backfill")[-6000:]
        victims[:] = desk.cluster.executors()
        return bool(victims)

    eventually_blocking(is_loading, "an executor with a Python worker", job_time_max_s)
    desk.cluster.kill_executor(victims[0])
    desk.finish(process, "backfill")
    assert Counter(desk.events("shop", "history")) == lines
