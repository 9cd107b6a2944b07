"""Tests the arguments of ``backfill load|export`` and the exit status of what cannot work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable
from pravega_spark.backfill.command import application
from pravega_spark.backfill.definition import ExportJob, LoadJob
from pravega_spark.backfill.load import Chunks
from pravega_spark.backfill.main import main
from pravega_spark.backfill.runner import JobRun, LoadSettings, Summary
from pravega_spark.commands.requirements import exit_without
from pravega_spark.source.data_loss import data_loss, replaced

LOAD = ("load", "data/", "s/t", "--job-id", "j")


class RecordingRunner:
    """Notes what it is asked to run; ``failure`` is raised instead of a summary."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure
        self.runs: list[JobRun] = []
        self.loads: list[LoadJob] = []
        self.settings: list[LoadSettings] = []
        self.exports: list[ExportJob] = []
        self.chunks: list[int | None] = []

    def load(self, run: JobRun, job: LoadJob, settings: LoadSettings) -> Summary:
        self.loads.append(job)
        self.settings.append(settings)
        return self._summary(run, {"into": job.target, "rows": 1_234, "commits": 2})

    def export(self, run: JobRun, job: ExportJob, chunk_bytes: int | None) -> Summary:
        self.exports.append(job)
        self.chunks.append(chunk_bytes)
        return self._summary(run, {"into": job.target, "rows": 5, "files": 1, "bytes": 6_000, "done_before": True})

    def _summary(self, run: JobRun, counts: Summary) -> Summary:
        self.runs.append(run)
        if self.failure is not None:
            raise self.failure
        return {"job_id": run.job_id, **counts}


def run(runner: RecordingRunner, *arguments: str, status: int = 0) -> None:
    with pytest.raises(SystemExit) as stopped:
        application("backfill", runner)(arguments)
    assert stopped.value.code == status


@pytest.fixture
def runner() -> RecordingRunner:
    return RecordingRunner()


def test_arguments_of_load(runner: RecordingRunner) -> None:
    more = ("--format", "csv", "--option", "header=true", "--option", "sep==", "--key", "id", "--schema", "id int")
    where = ("--segments", "3", "--checkpoint", "memory", "--controller", "tcp://c:1", "--master", "local[2]")
    run(runner, *LOAD, *more, *where, "--event", "upper(id)")
    run(runner, *LOAD, "--format", "jdbc", "--chunk-files", "3")
    run(runner, "load", "-", "s/t", "--job-id", "j", "--format", "jdbc", "--chunk-bytes", "1k")
    assert runner.loads[0] == LoadJob(
        "data/", "csv", "s/t", {"header": "true", "sep": "="}, "id int", "upper(id)", "id"
    )
    assert [job.is_of_files for job in runner.loads] == [True, False, False]
    assert runner.loads[2].source == "-"
    assert runner.settings[0] == LoadSettings(3, "memory", Chunks(256 * 1024 * 1024))
    assert [settings.chunks.files for settings in runner.settings] == [None, 3, None]
    assert runner.settings[2] == LoadSettings(1, "", Chunks(1024))
    assert runner.runs[0] == JobRun("j", "tcp://c:1", "local[2]")
    run(runner, "load", "-", "s/t", "--job-id", "j", "--format", "jdbc", "--stage", "--stage-rows", "7")
    assert [job.stage for job in runner.loads] == [False, False, False, True]
    assert [settings.chunks.rows for settings in runner.settings] == [100_000, 100_000, 100_000, 7]


def test_tabs_part_the_columns_of_tsv(runner: RecordingRunner, tmp_path: Path) -> None:
    """Else a line with commas in its texts is cut at these, and what lies behind the first line's columns is lost."""
    (tmp_path / "part-0.tsv").write_text("1\tNo, thanks\n")
    for source in ("a.tsv", "/data/*.tsv.gz", str(tmp_path)):
        run(runner, "load", source, "s/t", "--job-id", "j", "--option", "header=true")
    assert [job.source_format for job in runner.loads] == ["csv"] * 3
    assert all(job.options == {"header": "true", "sep": "\t"} and job.is_of_files for job in runner.loads)
    for own in ("sep=;", "Delimiter=;"):
        run(runner, "load", "a.tsv", "s/t", "--job-id", "j", "--option", own)
        assert runner.loads[-1].options == dict([own.split("=")])
    run(runner, "load", "a.tsv", "s/t", "--job-id", "j", "--format", "csv")
    assert runner.loads[-1].options == {}


def test_arguments_of_export(runner: RecordingRunner) -> None:
    arguments = ("export", "s/t", "out", "--job-id", "j")
    run(runner, *arguments, "--select", "event", "--select", "offset", "--end", "X")
    run(runner, *arguments, "--start", "Y", "--chunk-bytes", "1k")
    assert runner.chunks == [None, 1024]
    assert runner.exports == [
        ExportJob("s/t", "out", "earliest", "X", ("event", "offset")),
        ExportJob("s/t", "out", "Y", "latest", ()),
    ]


def test_the_controller_by_default(runner: RecordingRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRAVEGA_CONTROLLER", raising=False)
    run(runner, *LOAD, "--format", "text")
    monkeypatch.setenv("PRAVEGA_CONTROLLER", "tcp://other:1")
    run(runner, *LOAD, "--format", "text")
    assert runner.runs == [JobRun("j", "tcp://localhost:9090"), JobRun("j", "tcp://other:1")]


def test_summaries(runner: RecordingRunner, capsys: pytest.CaptureFixture[str]) -> None:
    run(runner, *LOAD, "--format", "text")
    run(runner, "export", "s/t", "out", "--job-id", "j")
    assert capsys.readouterr().out.splitlines() == [
        "job j into s/t: 1,234 rows, 2 commits",
        "job j into out: 5 rows, 1 file, 6,000 bytes (done before, nothing was written now)",
    ]
    run(runner, *LOAD, "--format", "text", "--json")
    assert json.loads(capsys.readouterr().out) == {"job_id": "j", "into": "s/t", "rows": 1_234, "commits": 2}


@pytest.mark.parametrize(
    "lost",
    [
        data_loss("s", "t", 0, 5, 18),
        RuntimeError(f"Traceback\npravega_common.errors.DataCorruption: {data_loss('s', 't', 0, 5, None)}\n\tat java"),
        replaced("s", "t", 0, 18, "it has 9 bytes now"),
    ],
)
def test_lost_data_is_told_with_what_an_export_can_do(lost: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Option ``fail_on_data_loss`` is one of queries; a load may read a stream with it (``--option``)."""
    run(RecordingRunner(lost), "export", "s/t", "out", "--job-id", "j", status=1)
    said = capsys.readouterr().err
    assert "; take another --job-id, and begin at the head (--start earliest), or at the text that" in said
    assert "that pravega-spark stream cut s/t head prints" in said and "fail_on_data_loss" not in said
    run(RecordingRunner(lost), *LOAD, "--format", "pravega", status=1)
    assert "fail_on_data_loss=false" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "status", "sentence"),
    [
        (KeyboardInterrupt(), 130, "backfill: stopped; run it again with --job-id j to go on"),
        (Unavailable("no controller answers"), 1, "backfill: no controller answers"),
        (RuntimeError("[PATH_NOT_FOUND] no\nmore"), 1, "backfill: job 'j' failed: [PATH_NOT_FOUND] no"),
    ],
)
def test_a_failure_is_one_sentence(
    failure: BaseException, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(RecordingRunner(failure), *LOAD, "--format", "text", status=status)
    assert capsys.readouterr().err == f"{sentence}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["load", "data/", "s/t", "--job-id", "j"], "'data/' is not there on this machine, so nothing tells"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--stage"], "csv is loaded in chunks without"),
        (["load", "a.csv", "t", "--job-id", "j"], "'t' is not of the form scope/stream"),
        (["load", "a.csv", "s/t", "--job-id", "../j"], "--job-id '../j' must be 1 to 100 letters"),
        (["load", "a.csv", "s/t", "--job-id", "x" * 101], "must be 1 to 100 letters"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--option", "header"], "--option 'header' is not of the form"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--chunk-bytes", "many"], "--chunk-bytes 'many' is no size"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--chunk-bytes", "0"], "--chunk-bytes 0 must be at least 1"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--chunk-files", "0"], "--chunk-files 0 must be at least 1"),
        (["load", "a.csv", "s/t", "--job-id", "j", "--segments", "0"], "--segments 0 must be at least 1 and at most"),
        (
            ["load", "a.csv", "s/t", "--job-id", "j", "--segments", "10001"],
            "10001 must be at least 1 and at most 4500",
        ),
        (
            ["load", "a.csv", "s/t", "--job-id", "j", "--chunk-files", "2", "--chunk-bytes", "1k"],
            "--chunk-bytes 1k and --chunk-files 2 exclude each other",
        ),
        (["load", "a.csv", "s/t", "--job-id", "j", "--controller", "http://x"], "scheme 'http' is not served"),
        (["export", "s", "out", "--job-id", "j"], "'s' is not of the form scope/stream"),
        (["export", "s/t", "out", "--job-id", "j", "--controller", "localhost:1"], "no controller answers"),
    ],
)
def test_bad_input_is_one_sentence_before_spark_starts(
    arguments: Sequence[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_wrong_usage_is_status_2() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["load", "data/"])
    assert stopped.value.code == 2


def test_a_missing_package_is_named_with_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    exit_without("backfill.py", "json")
    with pytest.raises(SystemExit) as stopped:
        exit_without("backfill.py", "json", "no_such_package")
    assert stopped.value.code == (
        "backfill.py: the command line needs no_such_package; install them with: pip install 'pravega-spark[cli]'"
    )
