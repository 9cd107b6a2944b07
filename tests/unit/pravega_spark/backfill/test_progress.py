"""Tests rate and remaining time, their display, and the list of input files that are written."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from pravega_spark.backfill.load import WrittenFiles, log_offset_of
from pravega_spark.backfill.progress import ChunkProgress, JobProgress, Meter, ProgressDisplay, duration_text


def test_rate_and_remaining_time() -> None:
    meter = Meter(100.0)
    assert meter.line(JobProgress(0), 101.0) == "0 rows, 0 rows/s, 1 s so far"
    assert meter.line(JobProgress(0, 0.2), 102.0) == " 20.0 %, 0 rows, 0 rows/s, 2 s so far"
    # Half of the input at the rate of this run: a fifth was written by a former one.
    assert meter.line(JobProgress(3_000, 0.5), 130.0) == " 50.0 %, 3,000 rows, 100 rows/s, about 50 s left, 30 s so far"
    assert meter.line(JobProgress(8_000, 1.0), 180.0).startswith("100.0 %, 8,000 rows, 100 rows/s, about 0 s left")
    assert meter.line(JobProgress(), 100.0) == "0 s so far"


def test_durations() -> None:
    assert [duration_text(seconds) for seconds in (0.4, 59.4, 200, 7_500)] == [
        "0 s",
        "59 s",
        "3 min 20 s",
        "2 h 05 min",
    ]


def shown(ask: Callable[[], JobProgress], *, is_terminal: bool, plain_line_every_s: float) -> str:
    """Returns the output of a display that is open until it has asked four times."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=is_terminal, width=160, color_system=None)
    asked = threading.Semaphore(0)

    def counted() -> JobProgress:
        asked.release()
        return ask()

    with ProgressDisplay(counted, console, tick_s=0.001, plain_line_every_s=plain_line_every_s):
        for _ in range(4):
            assert asked.acquire(timeout=20)
    return output.getvalue()


def test_a_terminal_shows_a_bar_and_the_line() -> None:
    text = shown(lambda: JobProgress(3_000, 0.5), is_terminal=True, plain_line_every_s=60)
    assert "━" in text
    assert " 50.0 %, 3,000 rows" in text


def test_a_log_gets_plain_lines() -> None:
    text = shown(lambda: JobProgress(3_000, 0.5), is_terminal=False, plain_line_every_s=0)
    assert len(text.splitlines()) >= 3
    for line in text.splitlines():
        assert line.startswith(" 50.0 %, 3,000 rows, ")
        assert line.isprintable()


def test_unknown_progress_fails_nothing() -> None:
    def fail() -> JobProgress:
        raise RuntimeError("no [stage] is known")

    for is_terminal in (True, False):
        text = shown(fail, is_terminal=is_terminal, plain_line_every_s=0)
        assert "progress is not known: no [stage] is known" in text


class LogFolder:
    """The files of Spark's file source, and which of them were read."""

    path = "job"

    def __init__(self, **files: list[str]) -> None:
        self.files = {name.replace("_", ".").lstrip("n"): paths for name, paths in files.items()}
        self.read: list[str] = []

    def read_text(self, name: str) -> str | None:
        name = name.rpartition("/")[2]
        if name not in self.files:
            return None
        self.read.append(name)
        entries = [json.dumps({"path": path, "timestamp": 1, "batchId": 0}) for path in self.files[name]]
        return "\n".join(["v1", *entries])


def test_written_files_are_those_of_finished_batches() -> None:
    folder = LogFolder(n0=["file:///a%20b/1"], n1=["file:///a%20b/2"], n2=["file:///a%20b/3"])
    written = WrittenFiles(folder, "log")  # type: ignore[arg-type]
    assert written.up_to(-1) == set()
    assert written.up_to(1) == {"file:/a b/1", "file:/a b/2"}
    folder.read.clear()
    assert len(written.up_to(2)) == 3
    assert folder.read == ["2"]


def test_a_compacted_log_has_all_that_came_before() -> None:
    folder = LogFolder(n9_compact=[f"hdfs://h/{number}" for number in range(10)], n10=["hdfs://h/10"])
    assert len(WrittenFiles(folder, "log").up_to(10)) == 11  # type: ignore[arg-type]
    assert folder.read == ["10", "9.compact"]


@pytest.mark.parametrize(
    ("offset", "number"),
    [('{"logOffset":12}', 12), ("{'logOffset': 3}", 3), ('{"logOffset": -1}', -1), ("", -1), (None, -1)],
)
def test_the_offset_of_a_file_source_on_every_spark(offset: str | None, number: int) -> None:
    assert log_offset_of(offset) == number


def test_the_progress_of_chunks_begins_where_a_former_run_ended_and_never_goes_back() -> None:
    running = JobProgress()
    progress = ChunkProgress({0: 100, 1: 100, 2: 200}, lambda: running)
    progress.begin(0)
    progress.begin(1)
    assert progress.now() == JobProgress(0, 0.25), "the first chunk is a former run's: its rows are not of this run"
    running = JobProgress(30, 0.5)
    assert progress.now() == JobProgress(30, 0.375)
    running = JobProgress()
    assert progress.now() == JobProgress(30, 0.375), "its job has ended, and nobody has counted its rows yet"
    progress.wrote(60)
    assert progress.now() == JobProgress(60, 0.5)
    progress.begin(2)
    running = JobProgress(40, 0.5)
    assert progress.now() == JobProgress(100, 0.75)
    running = JobProgress()
    progress.wrote(80)
    assert progress.now() == JobProgress(140, 1.0)


def test_the_progress_of_one_chunk_of_unknown_size() -> None:
    progress = ChunkProgress({0: 0}, lambda: JobProgress(5, 0.5))
    progress.begin(0)
    assert progress.now() == JobProgress(5, 0.5)
