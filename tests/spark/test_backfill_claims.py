"""Tests that a load is written once by its job id, whatever became of its folder and its stream."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_common.errors import ConfigurationError
from pravega_spark.backfill.definition import LoadJob
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.job_memory import CLAIMED, METADATA, QUERY, JobMisplaced
from pravega_spark.backfill.load import Chunks, LoadResult, run_load
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient


class Loads:
    """Loads of text files under the job id ``j`` into a stream of the test's own."""

    def __init__(self, spark: SparkSession, controller: str, folder: Path) -> None:
        self.spark = spark
        self.controller = controller
        self.folder = folder
        self.scope = f"scope-{uuid.uuid4().hex[:8]}"
        self.source = folder / "lines"
        self.source.mkdir()

    def add(self, name: str, *lines: str) -> None:
        (self.source / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, memory: str = "jobs") -> LoadResult:
        sink = {"controller": self.controller, "scope": self.scope, "stream": "t"}
        job = LoadJob(str(self.source), "text", f"{self.scope}/t")
        return run_load(self.spark, "j", job, self.at(memory), sink, Chunks(1 << 20))

    def at(self, memory: str) -> JobFolder:
        return JobFolder(self.spark, str(self.folder / memory / "j"))

    def events(self) -> list[bytes]:
        with StreamClient(self.controller) as client:
            return [event.data for event in read_events(client, self.scope, "t")]

    def delete_stream(self) -> None:
        with StreamClient(self.controller) as client:
            client.controller.seal_stream(self.scope, "t")
            client.controller.delete_stream(self.scope, "t")


@pytest.fixture
def loads(spark: SparkSession, services: StandaloneProcess, tmp_path: Path) -> Loads:
    made = Loads(spark, services.controller_uri, tmp_path)
    made.add("a.txt", "one", "two")
    return made


def test_a_run_says_what_was_done_before(loads: Loads) -> None:
    assert loads.run() == LoadResult(2, 1)
    assert loads.run() == LoadResult(0, 0, rows_before=2)
    loads.add("b.txt", "three")
    assert loads.run() == LoadResult(1, 1, rows_before=2)
    assert loads.run() == LoadResult(0, 0, rows_before=3)


def test_a_run_beside_another_is_refused_and_spoils_nothing(loads: Loads) -> None:
    """Two first runs at once: the folder would have the query id of one and the claim of the other."""
    with loads.at("jobs").run_alone("j"), pytest.raises(ConfigurationError, match="another run of job 'j'"):
        loads.run()
    assert loads.run() == LoadResult(2, 1)
    assert loads.run() == LoadResult(0, 0, rows_before=2)


def test_another_folder_does_not_load_again(loads: Loads) -> None:
    loads.run()
    with pytest.raises(JobMisplaced, match=r"2 rows .* from another machine or folder"):
        loads.run("elsewhere")
    shutil.rmtree(loads.folder / "jobs" / "j" / "checkpoint")
    with pytest.raises(JobMisplaced, match="is not there any more"):
        loads.run()
    assert loads.events() == [b"one", b"two"]


def test_a_replaced_stream_is_not_taken_for_a_loaded_one(loads: Loads) -> None:
    """The sink's record and the checkpoint say that all files are written, but the new stream has none of them."""
    loads.run()
    loads.delete_stream()
    with pytest.raises(JobMisplaced, match="was deleted since"):
        loads.run()
    with StreamClient(loads.controller) as client:
        assert not client.controller.stream_exists(loads.scope, "t")
    shutil.rmtree(loads.folder / "jobs")
    assert loads.run() == LoadResult(2, 1)
    assert loads.events() == [b"one", b"two"]


def test_a_job_that_0_1_0_began_goes_on(loads: Loads) -> None:
    """Spark made the query's id then, and the folder had no claim."""
    loads.run()
    folder = loads.folder / "jobs" / "j"
    for name in (QUERY, CLAIMED):
        (folder / name).unlink()
    assert (folder / METADATA).exists()
    loads.add("b.txt", "three")
    assert loads.run().rows == 1
    assert loads.events() == [b"one", b"two", b"three"]
