"""Rate and remaining time, and which input files are written."""

from __future__ import annotations

import json

from pravega_spark.backfill.load import WrittenFiles
from pravega_spark.backfill.progress import Meter, State, duration_text


def test_rate_and_remaining_time() -> None:
    meter = Meter(100.0)
    assert meter.line(State(0), 101.0) == "0 rows, 0 rows/s, 1 s so far"
    assert meter.line(State(0, 0.2), 102.0) == " 20.0 %, 0 rows, 0 rows/s, 2 s so far"
    # Half of the input at the rate of this run: a fifth was written by a former one.
    assert meter.line(State(3_000, 0.5), 130.0) == " 50.0 %, 3,000 rows, 100 rows/s, about 50 s left, 30 s so far"
    assert meter.line(State(8_000, 1.0), 180.0).startswith("100.0 %, 8,000 rows, 100 rows/s, about 0 s left")
    assert meter.line(State(), 100.0) == "0 s so far"


def test_durations() -> None:
    assert [duration_text(seconds) for seconds in (0.4, 59.4, 200, 7_500)] == [
        "0 s",
        "59 s",
        "3 min 20 s",
        "2 h 05 min",
    ]


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
