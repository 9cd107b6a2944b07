"""What a backfill job may be, and that a job id stands for one job."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pravega_common.errors import PravegaError
from pravega_spark.backfill.arguments import chunks_of, export_job, load_job, parser
from pravega_spark.backfill.definition import (
    ExportJob,
    JobDiffers,
    LoadJob,
    checked_job_id,
    compare_with_record,
    format_of,
    job_json,
)
from pravega_spark.backfill.main import main, sentence_of


def load(*more: str) -> LoadJob:
    return load_job(parser("backfill").parse_args(["load", "data/", "s/t", "--job-id", "j", *more]))


def test_arguments_of_load() -> None:
    job = load("--format", "csv", "--option", "header=true", "--option", "sep==", "--key", "id", "--schema", "id int")
    assert job == LoadJob("data/", "csv", "s/t", {"header": "true", "sep": "="}, "id int", "", "id")
    assert job.is_of_files
    assert not load("--format", "jdbc").is_of_files


@pytest.mark.parametrize(
    ("source_format", "event", "expression"),
    [
        ("parquet", "", "to_json(struct(*))"),
        ("text", "", "value"),
        ("binaryFile", "", "content"),
        ("Text", "", "value"),
        ("binaryfile", "", "content"),
        ("text", "upper(value)", "upper(value)"),
    ],
)
def test_the_event_by_default(source_format: str, event: str, expression: str) -> None:
    assert LoadJob("data", source_format, "s/t", event=event).event_expression == expression


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.parquet", "parquet"),
        ("/data/*.csv.gz", "csv"),
        ("s3://b/x.JSONL", "json"),
        ("logs/*.txt.zst", "text"),
        ("d.parquet/", "parquet"),
    ],
)
def test_the_format_by_the_ending(path: str, found: str) -> None:
    assert format_of(path) == found


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["load", "data/", "s/t", "--job-id", "j"], "'data/' does not say of what format it is; give --format parquet"),
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
            "10001 must be at least 1 and at most 10000",
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
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_wrong_usage_is_status_2() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["load", "data/"])
    assert stopped.value.code == 2


def test_chunks() -> None:
    assert chunks_of(parser("b").parse_args(["load", "a", "s/t", "--job-id", "j"])).size_bytes == 256 * 1024 * 1024
    assert chunks_of(parser("b").parse_args(["load", "a", "s/t", "--job-id", "j", "--chunk-files", "3"])).files == 3


def test_a_job_is_what_it_was() -> None:
    job = LoadJob("data", "csv", "s/t", {"header": "true"}, "id int")
    recorded = json.loads(json.dumps(job_json(job)))
    compare_with_record("j", job, recorded)
    # A job without a schema keeps the one that was read at its first run.
    compare_with_record("j", LoadJob("data", "csv", "s/t", {"header": "true"}), recorded)
    export = ExportJob("s/t", "out", select=("event", "offset"))
    compare_with_record("j", export, {**json.loads(json.dumps(job_json(export))), "range": {}})


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (LoadJob("other", "csv", "s/t"), "job 'j' was begun with source 'data', and is now given 'other'"),
        (LoadJob("data", "csv", "s/u"), "begun with target 's/t', and is now given 's/u'"),
        (LoadJob("data", "csv", "s/t", key="id"), "begun with key 'none', and is now given 'id'"),
        (LoadJob("data", "csv", "s/t", {"header": "true"}), "begun with options '{}', and is now given"),
    ],
)
def test_another_job_under_the_same_id_is_refused(changed: LoadJob, complaint: str) -> None:
    recorded = job_json(LoadJob("data", "csv", "s/t"))
    with pytest.raises(JobDiffers, match=complaint) as refused:
        compare_with_record("j", changed, recorded)
    assert isinstance(refused.value, PravegaError)


def test_job_ids() -> None:
    assert checked_job_id("history-2026.01_a") == "history-2026.01_a"


def test_an_export_ends_where_it_is_told() -> None:
    given = parser("b").parse_args(["export", "s/t", "out", "--job-id", "j", "--select", "event", "--end", "X"])
    assert export_job(given) == ExportJob("s/t", "out", "earliest", "X", ("event",))


def test_what_a_person_needs_of_sparks_errors() -> None:
    ours = "Traceback …\npravega_common.errors.InvalidArgument: 3 of 9 events are null; filter them out\n  at java…"
    assert sentence_of(RuntimeError(ours)) == "3 of 9 events are null; filter them out"
    assert (
        sentence_of(RuntimeError("\n[PATH_NOT_FOUND] Path does not exist\nmore"))
        == "[PATH_NOT_FOUND] Path does not exist"
    )
    assert sentence_of(RuntimeError()) == "RuntimeError"
    of_java = "An error occurred while calling o41.create.\n: java.io.IOException: No space left on device\n\tat java…"
    assert sentence_of(RuntimeError(of_java)) == "java.io.IOException: No space left on device"
