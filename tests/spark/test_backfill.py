"""Tests backfill jobs through SIGKILL and refused steps: every row exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from pravega_common.errors import ConfigurationError, InvalidArgument, UnknownOutcome
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_common.runtime.failpoints import FailpointError, arm, disarm_all, environment_of, raise_on_hit
from pravega_common.stream_cut import StreamCut
from pravega_spark.backfill import export
from pravega_spark.backfill.definition import ExportJob, JobDiffers, LoadJob
from pravega_spark.backfill.export import ExportResult, resolver, run_export
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.job_memory import JobMisplaced
from pravega_spark.backfill.load import Chunks, LoadResult, run_load
from pravega_spark.backfill.progress import JobProgress, progress_of_stages
from pravega_spark.backfill.staging import AFTER_STAGED, BEFORE_LOADED, BEFORE_STAGED, FOLDER, STAGED
from pravega_spark.source.checkpoint import committed_position
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.segment.event_index import EventIndex
from tests.spark.driver_process import REPOSITORY
from tests.spark.streams import Streams
from tests.support.eventually import eventually_blocking
from tests.support.processes import kill_tree, state_of

wait_max_s = 240
poll_s = 0.02
files, rows_per_file = 8, 2_000


class Place:
    """A scope of the test's own, whose streams are read without Spark."""

    def __init__(self, controller: str, folder: Path) -> None:
        self.controller = controller
        self.folder = folder
        self.scope = f"scope-{uuid.uuid4().hex[:8]}"

    def events(self, stream: str = "t") -> list[bytes]:
        with StreamClient(self.controller) as client:
            return [event.data for event in read_events(client, self.scope, stream)]

    def fill(self, count: int, segments: int = 1, first: int = 0) -> None:
        with StreamClient(self.controller) as client:
            client.controller.create_scope(self.scope)
            client.controller.create_stream(self.scope, "t", StreamConfiguration(ScalingPolicy.fixed(segments)))
            with EventWriter(client, self.scope, "t") as writer:
                for number in range(first, first + count):
                    writer.write(f"{number}".encode(), f"k{number % 20}")

    def tail(self) -> Mapping[int, int]:
        with StreamClient(self.controller) as client:
            return client.tail_cut(self.scope, "t")

    def is_indexed(self) -> bool:
        """Whether the stores know the times of all that is written: their index follows by a tenth of a second."""
        with StreamClient(self.controller) as client:
            names = [segment_name(self.scope, "t", segment) for segment in client.tail_cut(self.scope, "t")]
            indexes = [EventIndex.of(client.segments, name) for name in names]
        return all(index.indexed_length == index.length for index in indexes)


@pytest.fixture
def place(services: StandaloneProcess, tmp_path: Path) -> Place:
    return Place(services.controller_uri, tmp_path)


# ---- files into a stream ---------------------------------------------------------------------------------------------


class BackfillProcess:
    """``scripts/backfill.py`` as a process of its own."""

    def __init__(self, log: Path, *arguments: str, failpoints: str = "") -> None:
        self._log = log
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            **environment_of(failpoints),
        }
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "scripts/backfill.py", *arguments, "--master", "local[2]", "--json"],
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )

    def wait_for(self, what: str, seen: Callable[[], bool]) -> None:
        def is_seen() -> bool:
            if seen():
                return True
            assert self.process.poll() is None, f"the job ended before {what}:\n{self.tail()}"
            return False

        eventually_blocking(is_seen, what, wait_max_s)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its Python workers."""
        kill_tree(self.process.pid)
        self.process.wait()

    def finish(self) -> dict[str, Any]:
        try:
            output, _ = self.process.communicate(timeout=wait_max_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert self.process.returncode == 0, self.tail()
        summary: dict[str, Any] = json.loads(output)
        return summary

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def write_files(folder: Path) -> list[str]:
    """Returns the ids that are in them."""
    folder.mkdir()
    for number in range(files):
        identifiers = range(number * rows_per_file, (number + 1) * rows_per_file)
        table = pa.table({"id": list(identifiers), "name": [f"n{item % 7}" for item in identifiers]})
        parquet.write_table(table, folder / f"part {number}.parquet")
    return [str(item) for item in range(files * rows_per_file)]


@pytest.mark.slow
def test_a_load_that_is_killed_goes_on_where_it_was(place: Place) -> None:
    expected = write_files(place.folder / "in put")
    checkpoint = place.folder / "jobs" / "j" / "checkpoint"
    arguments = [
        *("load", str(place.folder / "in put"), f"{place.scope}/t", "--controller", place.controller),
        *("--job-id", "j", "--format", "parquet", "--event", "cast(id AS string)", "--key", "name"),
        *("--chunk-files", "1", "--segments", "2", "--checkpoint", str(place.folder / "jobs")),
    ]

    def finished() -> int:
        return len([item for item in (checkpoint / "commits").glob("*") if item.name.isdecimal()])

    def planned() -> int:
        return len([item for item in (checkpoint / "offsets").glob("*") if item.name.isdecimal()])

    def is_in_the_middle() -> bool:
        return finished() >= 2 and planned() > finished()

    first = BackfillProcess(place.folder / "driver.log", *arguments)
    try:
        first.wait_for("batch in the middle", is_in_the_middle)
    finally:
        first.kill()
    done = finished()
    assert 2 <= done < files, "the job was through before it was killed"
    second = BackfillProcess(place.folder / "driver.log", *arguments).finish()
    assert 1 <= second["commits"] <= files - done
    counts = Counter(event.decode() for event in place.events())
    assert counts == Counter(expected)


def sink_of(place: Place, stream: str = "t") -> dict[str, str]:
    return {"controller": place.controller, "scope": place.scope, "stream": stream, "default_num_segments": "1"}


def test_new_files_are_loaded_and_old_ones_are_not_loaded_again(spark: SparkSession, place: Place) -> None:
    source = place.folder / "lines"
    source.mkdir()
    (source / "a.txt").write_text("one\ntwo\n")
    job = LoadJob(str(source), "text", f"{place.scope}/t")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    chunks = Chunks(1 << 20)
    result = run_load(spark, "j", job, folder, sink_of(place), chunks)
    assert (result.rows, result.batches) == (2, 1)
    assert run_load(spark, "j", job, folder, sink_of(place), chunks).rows == 0
    # Older than what was loaded, as files of a backfill may be.
    (source / "b.txt").write_text("three\n")
    os.utime(source / "b.txt", (1_000_000_000, 1_000_000_000))
    assert run_load(spark, "j", job, folder, sink_of(place), chunks).rows == 1
    assert place.events() == [b"one", b"two", b"three"]
    other = LoadJob(str(source), "text", job.target, event="upper(value)")
    with pytest.raises(JobDiffers, match="begun with event 'none', and is now given 'upper"):
        run_load(spark, "j", other, folder, sink_of(place), chunks)


def lines_in_order(place: Place, names: str) -> Path:
    """A folder with a file of one line for each letter, each younger than the one before."""
    source = place.folder / "lines"
    source.mkdir()
    for number, name in enumerate(names):
        (source / f"{name}.txt").write_text(f"{name}\n")
        os.utime(source / f"{name}.txt", (1_000_000_000 + number, 1_000_000_000 + number))
    return source


@contextmanager
def removed_once_listed(place: Place, file: Path) -> Iterator[None]:
    """Removes a file beside a load, job "j", that has listed what its first chunk has."""
    planned = place.folder / "jobs" / "j" / "checkpoint" / "sources" / "0" / "0"

    def remove() -> None:
        eventually_blocking(planned.exists, "the list of the first chunk", wait_max_s)
        file.unlink()

    with ThreadPoolExecutor(1) as pool:
        removed = pool.submit(remove)
        yield
        removed.result()


def test_a_file_that_is_removed_during_a_load_is_told(spark: SparkSession, place: Place) -> None:
    """Spark passes over it without an error; files that former runs have loaded may go."""
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    source = lines_in_order(place, "abc")
    job = LoadJob(str(source), "text", f"{place.scope}/t")
    told = r"at least 1 input files were removed during the load, as .*c\.txt"
    with removed_once_listed(place, source / "c.txt"), pytest.raises(UnknownOutcome, match=told):
        run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20, files=1))
    assert place.events() == [b"a", b"b"]
    (source / "a.txt").unlink()
    (source / "d.txt").write_text("d\n")
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 1


def test_a_file_that_is_removed_before_a_load_fails_is_told(spark: SparkSession, place: Place) -> None:
    """No later run looks for it: the claim says how far this one came."""
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    source = lines_in_order(place, "abcd")
    event = "if(value = 'd', cast(raise_error('no d') AS string), value)"
    job = LoadJob(str(source), "text", f"{place.scope}/t", event=event)
    told = r"failed: .*no d.* removed during the load, as .*c\.txt"
    with removed_once_listed(place, source / "c.txt"), pytest.raises(UnknownOutcome, match=told):
        run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20, files=1))
    assert place.events() == [b"a", b"b"]
    (source / "d.txt").write_text("D\n")
    result = run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20, files=1))
    assert (result.rows, result.rows_before, result.is_before_exact) == (1, 2, True)


def test_files_that_spark_removes_by_an_option_are_not_missed(spark: SparkSession, place: Place) -> None:
    source = place.folder / "lines"
    source.mkdir()
    for name in ("a", "b"):
        (source / f"{name}.txt").write_text(f"{name}\n")
    job = LoadJob(str(source), "text", f"{place.scope}/t", {"cleanSource": "delete"})
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20, files=1)).rows == 2


def test_json_lines(spark: SparkSession, place: Place) -> None:
    source = place.folder / "lines.json"
    source.write_text('{"user": "ü", "text": "one"}\n{"user": null, "text": "two"}\n')
    job = LoadJob(str(source), "json", f"{place.scope}/t", event="text", key="user")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 2
    assert place.events() == [b"one", b"two"]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"source": "/no/such/folder", "schema": "value string"}, "PATH_NOT_FOUND"),
        ({"event": "no_such_column"}, "no_such_column"),
        ({"event": "length(value)"}, "event attribute type must be a string or binary"),
        ({"key": "no_such_column"}, "no_such_column"),
        ({"event": "max(value)"}, "(?i)aggregat"),
        ({"event": "lag(value) OVER (ORDER BY value)"}, "(?i)window"),
    ],
)
def test_a_slip_costs_no_job_id(spark: SparkSession, place: Place, wrong: dict[str, Any], complaint: str) -> None:
    """A job that cannot work is not recorded, so a corrected one can begin under the same id."""
    (place.folder / "a.txt").write_text("one\n")
    job = LoadJob(str(place.folder / "a.txt"), "text", f"{place.scope}/t")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    with pytest.raises(Exception, match=complaint):
        run_load(spark, "j", replace(job, **wrong), folder, sink_of(place), Chunks(1 << 20))
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 1
    assert place.events() == [b"one"]


def test_a_folder_that_cannot_be_made(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="the folder '/proc/none/j' cannot be made"):
        JobFolder(spark, "/proc/none/j")


def test_rows_are_json_by_default_and_keep_the_schema_of_the_first_run(spark: SparkSession, place: Place) -> None:
    source = place.folder / "table"
    source.mkdir()
    (source / "a.csv").write_text("id,name\n1,ü\n2,\n")
    job = LoadJob(str(source), "csv", f"{place.scope}/t", {"header": "true", "inferSchema": "true"})
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20))
    (source / "b.csv").write_text("id,name\n3,text\n")
    run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20))
    events = [json.loads(event) for event in place.events()]
    assert events == [{"id": 1, "name": "ü"}, {"id": 2}, {"id": 3, "name": "text"}]


@pytest.mark.parametrize("path", ["only one.txt", "only*.txt", "*.t[wx]t"])
def test_a_single_file_and_patterns(spark: SparkSession, place: Place, path: str) -> None:
    (place.folder / "only one.txt").write_text("one\ntwo\n")
    (place.folder / "other.csv").write_text("other\n")
    job = LoadJob(str(place.folder / path), "text", f"{place.scope}/t")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 2
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 0
    assert place.events() == [b"one", b"two"]


@pytest.mark.parametrize("name", ["_only.txt", ".only.txt"])
def test_a_single_file_that_spark_passes_over_is_refused(spark: SparkSession, place: Place, name: str) -> None:
    (place.folder / name).write_text("one\n")
    job = LoadJob(str(place.folder / name), "text", f"{place.scope}/t")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    with pytest.raises(InvalidArgument, match=f"/{name}' begins with .*: Spark reads no such file"):
        run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20))
    (place.folder / "only.txt").write_text("one\n")
    job = replace(job, source=str(place.folder / "only.txt"))
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1 << 20)).rows == 1


def test_a_format_that_is_no_files_is_one_commit_under_the_job(
    spark: SparkSession, place: Place, streams: Streams
) -> None:
    streams.fill("from", 0, 500)
    given = streams.options("from")
    job = LoadJob("-", "pravega", f"{place.scope}/t", given, event="event")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    with StreamClient(place.controller) as client:
        client.controller.create_scope(place.scope)
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1)).rows == 500
    run_load(spark, "j", job, folder, sink_of(place), Chunks(1))
    assert sorted(int(event) for event in place.events()) == list(range(500))


def test_one_commit_that_was_not_noted_is_known_to_its_sink_though_the_source_has_grown(
    spark: SparkSession, place: Place, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.fill("from", 0, 500)
    job = LoadJob("-", "pravega", f"{place.scope}/t", streams.options("from"), event="event")
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    with monkeypatch.context() as dying:
        dying.setattr("pravega_spark.backfill.load._note_rows", lambda *given, **more: None)
        assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1)) == LoadResult(500, 1)
    streams.fill("from", 500, 520)
    assert run_load(spark, "j", job, folder, sink_of(place), Chunks(1)) == LoadResult(0, 0, 500)
    assert sorted(int(event) for event in place.events()) == list(range(500))


def staged_job(place: Place, count: int) -> tuple[LoadJob, list[str]]:
    """A load of a stream's rows, which are others when they are read again, and the arguments that begin it."""
    place.fill(count, segments=2)
    given = {"controller": place.controller, "scope": place.scope, "stream": "t"}
    job = LoadJob("-", "pravega", f"{place.scope}/copy", given, event="event", key="segment_id", stage=True)
    arguments = [
        *("load", "-", job.target, "--controller", place.controller, "--job-id", "j", "--format", "pravega"),
        *(text for name, value in given.items() for text in ("--option", f"{name}={value}")),
        *("--event", job.event, "--key", job.key, "--checkpoint", str(place.folder / "jobs")),
        *("--stage", "--stage-rows", "1000", "--chunk-files", "1"),
    ]
    return job, arguments


@pytest.mark.slow
def test_a_source_that_is_no_files_is_loaded_in_chunks_through_two_kills(place: Place) -> None:
    """Killed before its rows are staged, then in the middle of the load; what comes in later is not in it."""
    count = 10_000
    _, arguments = staged_job(place, count)
    folder, log = place.folder / "jobs" / "j", place.folder / "driver.log"
    first = BackfillProcess(log, *arguments, failpoints=f"{BEFORE_STAGED}=stop:1")
    try:
        first.wait_for("end of the first staging", lambda: state_of(first.process.pid) == "T")
    finally:
        first.kill()
    (abandoned,) = (folder / FOLDER).iterdir()
    assert not (folder / STAGED).exists()
    place.fill(500, first=count)

    def finished() -> int:
        return len([item for item in (folder / "checkpoint" / "commits").glob("*") if item.name.isdecimal()])

    second = BackfillProcess(log, *arguments)
    try:
        second.wait_for("third chunk", lambda: finished() >= 3)
    finally:
        second.kill()
    record = json.loads((folder / STAGED).read_text())
    assert record["attempt"] != abandoned.name and not abandoned.exists()
    done, chunks = finished(), len(record["files"])
    assert 3 <= done < chunks and chunks >= (count + 500) // 1_000, "the job was through before it was killed"
    place.fill(500, first=count + 500)
    third = BackfillProcess(log, *arguments).finish()
    assert 1 <= third["commits"] <= chunks - done
    assert Counter(int(event) for event in place.events("copy")) == Counter(range(count + 500))
    assert not (folder / FOLDER).exists()
    again = BackfillProcess(log, *arguments).finish()
    assert (again["rows"], again["commits"]) == (0, 0)


@pytest.mark.parametrize("step", [BEFORE_STAGED, AFTER_STAGED, BEFORE_LOADED])
def test_a_staged_load_that_fails_at_any_step_is_written_once(
    spark: SparkSession, place: Place, step: str, disarmed: None
) -> None:
    job, _ = staged_job(place, 3_000)
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    chunks = Chunks(1, rows=1_000)
    arm(step, raise_on_hit(step))
    with pytest.raises(FailpointError):
        run_load(spark, "j", job, folder, sink_of(place, "copy"), chunks)
    result = run_load(spark, "j", job, folder, sink_of(place, "copy"), chunks)
    assert result.rows + result.rows_before == 3_000
    assert sorted(int(event) for event in place.events("copy")) == list(range(3_000))
    assert run_load(spark, "j", job, folder, sink_of(place, "copy"), chunks).rows == 0
    with pytest.raises(JobDiffers, match="begun with stage 'True', and is now given 'none'"):
        run_load(spark, "j", replace(job, stage=False), folder, sink_of(place, "copy"), chunks)


def test_a_staged_load_whose_files_or_record_are_gone_is_refused(
    spark: SparkSession, place: Place, disarmed: None
) -> None:
    """Another staging would have other files, which the checkpoint does not know: rows would be there twice."""
    job, _ = staged_job(place, 3_000)
    folder = JobFolder(spark, str(place.folder / "jobs" / "j"))
    arm(BEFORE_LOADED, raise_on_hit(BEFORE_LOADED))
    with pytest.raises(FailpointError):
        run_load(spark, "j", job, folder, sink_of(place, "copy"), Chunks(1, rows=1_000))
    record = place.folder / "jobs" / "j" / STAGED
    kept = record.read_text()
    known = json.loads(kept)
    assert [*known] == ["version", "attempt", "schema", "files"] and known["version"] == 1
    record.with_name(f".{record.name}.crc").unlink()  # Hadoop's, of the bytes that it wrote
    record.write_text(json.dumps({**known, "version": 2}))
    with pytest.raises(JobMisplaced, match=r"staged\.json has version 2, this program reads 1"):
        run_load(spark, "j", job, folder, sink_of(place, "copy"), Chunks(1))
    record.unlink()
    with pytest.raises(JobMisplaced, match=r"staged\.json is not there any more, so nobody knows"):
        run_load(spark, "j", job, folder, sink_of(place, "copy"), Chunks(1))
    record.write_text(kept)
    next((place.folder / "jobs" / "j" / FOLDER).rglob("*.parquet")).unlink()
    with pytest.raises(JobMisplaced, match=r"1 staged files of .* are not there any more"):
        run_load(spark, "j", job, folder, sink_of(place, "copy"), Chunks(1))
    assert len(place.events("copy")) == 3_000


# ---- a stream into files ---------------------------------------------------------------------------------------------


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    disarm_all()


def run(spark: SparkSession, place: Place, job_id: str, job: ExportJob) -> ExportResult:
    folder = JobFolder(spark, f"{job.target}/{export.RECORD_FOLDER}/{job_id}")
    source = {"controller": place.controller, "scope": place.scope, "stream": "t"}
    return run_export(spark, job_id, job, folder, source, resolver(place.controller, job.stream))


def numbers_in(target: Path) -> list[int]:
    return sorted(int(item) for item in parquet.read_table(target).column("event").to_pylist())


STEPS = [
    export.AFTER_PLAN,
    export.BEFORE_CHUNK,
    export.AFTER_CHUNK,
    export.BEFORE_FILES,
    export.AFTER_FIRST_MOVE,
    export.BEFORE_DONE,
]


@pytest.mark.parametrize("step", STEPS)
def test_an_export_that_fails_at_any_step_is_written_once(
    spark: SparkSession, place: Place, step: str, disarmed: None
) -> None:
    place.fill(1_000, segments=3)
    target = place.folder / "out"
    job = ExportJob(f"{place.scope}/t", str(target), select=("cast(event AS string) AS event", "segment_id"))
    arm(step, raise_on_hit(step))
    with pytest.raises(FailpointError):
        run(spark, place, "one", job)
    # Its range was decided at the first run: what comes later is not in it.
    place.fill(300, first=1_000)
    result = run(spark, place, "one", job)
    assert (result.rows, result.is_repeated) == (1_000, False)
    assert numbers_in(target) == list(range(1_000))
    assert run(spark, place, "one", job).is_repeated
    assert numbers_in(target) == list(range(1_000))
    record = target / export.RECORD_FOLDER / "one"
    assert sorted(item.name for item in record.iterdir() if not item.name.startswith(".")) == [
        "done.json",
        "files.json",
        "plan.json",
    ]


def files_of(folder: Path) -> dict[int, tuple[int, int, int]]:
    """Inode, time of the last change and size of the Parquet files, by inode."""
    found = [path.stat() for path in folder.rglob("*.parquet")]
    return {item.st_ino: (item.st_ino, item.st_mtime_ns, item.st_size) for item in found}


@pytest.mark.slow
def test_an_export_that_is_killed_goes_on_with_the_chunk_that_is_missing(place: Place) -> None:
    """Killed after the second of five chunks: the files of the first two are those that the target gets."""
    count = 200_000  # enough for some stretches of the index in each chunk
    place.fill(count // 3, segments=2)
    with StreamClient(place.controller) as client:
        client.controller.scale_stream(place.scope, "t", [0], [(0.0, 0.25), (0.25, 0.5)])
    place.fill(count - count // 3, first=count // 3)
    eventually_blocking(place.is_indexed, "the index of the stream")
    size_bytes = sum(8 + len(str(number)) for number in range(count))
    target = place.folder / "out"
    arguments = [
        *("export", f"{place.scope}/t", str(target), "--job-id", "j", "--controller", place.controller),
        *("--select", "cast(event AS string) AS event", "--chunk-bytes", str(size_bytes // 5)),
    ]
    first = BackfillProcess(place.folder / "driver.log", *arguments, failpoints=f"{export.AFTER_CHUNK}=stop:2")
    try:
        first.wait_for("second chunk", lambda: state_of(first.process.pid) == "T")
    finally:
        first.kill()
    record = target / export.RECORD_FOLDER / "j"
    plan = json.loads((record / export.PLAN).read_text())
    assert 4 <= len(plan["chunks"]) <= 7
    assert sum(chunk["bytes"] for chunk in plan["chunks"]) == size_bytes
    before = files_of(record / export.CHUNKS)
    assert before and not [item for item in target.iterdir() if item.name != export.RECORD_FOLDER]
    place.fill(100, first=count)  # after the end of the range
    second = BackfillProcess(place.folder / "driver.log", *arguments).finish()
    assert (second["rows"], second["done_before"]) == (count, False)
    assert numbers_in(target) == list(range(count))
    after = files_of(target)
    assert before.items() <= after.items() and len(after) > len(before)
    assert not (record / export.CHUNKS).exists()
    assert BackfillProcess(place.folder / "driver.log", *arguments).finish()["done_before"]


def test_an_export_of_a_time_range_into_folders_by_day(spark: SparkSession, place: Place) -> None:
    """Stores know times to some 64 KiB: a little of what was written before may be in it."""
    place.fill(30_000)
    eventually_blocking(place.is_indexed, "the index of the stream's times")
    between = datetime.now(UTC).isoformat(timespec="milliseconds")
    place.fill(100, first=30_000)
    target = place.folder / "out"
    select = ("cast(event AS string) AS event", "pmod(cast(cast(event AS string) AS int), 3) AS third")
    job = ExportJob(f"{place.scope}/t", str(target), start=between, end="0s", select=select, partition_by=("third",))
    rows = run(spark, place, "one", job).rows
    assert 100 <= rows < 20_000
    assert sorted(item.name for item in target.iterdir() if not item.name.startswith("_")) == [
        "third=0",
        "third=1",
        "third=2",
    ]
    found = spark.read.parquet(str(target)).collect()
    assert sorted(int(row["event"]) for row in found) == list(range(30_100 - rows, 30_100))
    assert all(int(row["event"]) % 3 == row["third"] for row in found)
    assert run(spark, place, "one", job).is_repeated
    for columns, complaint in ((("nobody",), "is no column"), (("third", "event"), "leaves no column")):
        with pytest.raises(InvalidArgument, match=complaint):
            run(spark, place, "two", replace(job, partition_by=columns))


def test_an_export_that_an_older_version_began_goes_on(spark: SparkSession, place: Place) -> None:
    place.fill(10)
    target = place.folder / "out"
    job = ExportJob(f"{place.scope}/t", str(target), select=("cast(event AS string) AS event",))
    folder = target / export.RECORD_FOLDER / "one"
    assert run(spark, place, "one", job).rows == 10
    plan = json.loads((folder / export.PLAN).read_text())
    del plan["partition_by"]
    (folder / f".{export.PLAN}.crc").unlink(missing_ok=True)
    (folder / export.PLAN).write_text(json.dumps(plan))
    assert run(spark, place, "one", job).is_repeated
    with pytest.raises(JobDiffers, match="partition_by"):
        run(spark, place, "one", replace(job, partition_by=("event",)))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (("no_such_column",), "no_such_column"),
        (("offset", "offset"), "COLUMN_ALREADY_EXISTS"),
        (("offset", "segment_id AS OFFSET"), "COLUMN_ALREADY_EXISTS"),
        (("offset", "struct() AS nothing"), "(?i)empty"),
        (("count(*) AS events",), "--select makes each row of one event .*aggregat"),
        (("offset", "lag(offset) OVER (ORDER BY offset) AS before"), "--select makes each row of one event .*indow"),
        (("monotonically_increasing_id() AS number",), "--select makes each row of one event"),
    ],
)
def test_a_slip_costs_no_export(spark: SparkSession, place: Place, wrong: tuple[str, ...], complaint: str) -> None:
    place.fill(10)
    job = ExportJob(f"{place.scope}/t", str(place.folder / "out"), select=wrong)
    with pytest.raises(Exception, match=complaint):
        run(spark, place, "one", job)
    assert run(spark, place, "one", replace(job, select=("cast(event AS string) AS event",))).rows == 10
    assert numbers_in(place.folder / "out") == list(range(10))


def test_rows_of_running_stages(spark: SparkSession, streams: Streams) -> None:
    """An export shows these while it runs."""

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        # The work of a real Spark task, so that its stage is seen at half its way.
        time.sleep(1)

    streams.fill("t", 0, 400, default_num_segments=6)
    rows = streams.read("t", min_partitions=6).select("event")
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(lambda: rows.mapInArrow(slowly, "event binary").count())
        seen: list[JobProgress] = []
        while not counted.done():
            seen.append(progress_of_stages(spark))
            # Samples a running job, and waits for no state of it.
            time.sleep(poll_s)
    assert counted.result() == 400
    assert any(0 < (state.rows or 0) < 400 and 0 < (state.fraction or 0) < 1 for state in seen)
    assert progress_of_stages(spark) == JobProgress()


def test_jobs_export_ranges_side_by_side(spark: SparkSession, place: Place) -> None:
    place.fill(100)
    middle = StreamCut(place.scope, "t", place.tail()).as_text()
    place.fill(50, first=100)
    target = place.folder / "out"
    text = ("cast(event AS string) AS event",)
    first = ExportJob(f"{place.scope}/t", str(target), end=middle, select=text)
    second = ExportJob(f"{place.scope}/t", str(target), start=middle, select=text)
    assert run(spark, place, "day-1", first).rows == 100
    assert numbers_in(target) == list(range(100))
    assert run(spark, place, "day-2", second).rows == 50
    assert numbers_in(target) == list(range(150))
    with pytest.raises(JobDiffers, match="job 'day-1' was begun with start 'earliest'"):
        run(spark, place, "day-1", second)
    read_by_spark = spark.read.parquet(str(target))
    assert (read_by_spark.count(), read_by_spark.columns) == (150, ["event"])


# ---- retention at a query's position ---------------------------------------------------------------------------------


def test_the_position_of_a_real_checkpoint(streams: Streams) -> None:
    streams.fill("from", 0, 300, default_num_segments=2)
    finished = streams.gateway.tail_cut(streams.scope, "from")
    streams.run(streams.stream("from").load().select("event"), "to")
    found = committed_position(str(streams.folder / "checkpoint"))
    assert found.position == {f"{streams.scope}/from": finished}
    streams.gateway.truncate_stream(streams.scope, "from", found.position[f"{streams.scope}/from"])
    streams.fill("from", 300, 400)
    streams.run(streams.stream("from").load().select("event"), "to")
    assert streams.numbers("to") == list(range(400))
