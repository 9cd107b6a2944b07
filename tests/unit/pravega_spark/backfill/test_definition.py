"""Tests what a backfill job may be, and that a job id stands for one job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pravega_common.errors import InvalidArgument, PravegaError
from pravega_spark.backfill.definition import (
    ExportJob,
    JobDiffers,
    LoadJob,
    checked_job_id,
    compare_with_record,
    format_of,
    job_json,
    parse_options,
)
from pravega_spark.backfill.spark_errors import sentence_of


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


def test_a_job_is_what_it_was() -> None:
    job = LoadJob("data", "csv", "s/t", {"header": "true"}, "id int")
    recorded = json.loads(json.dumps(job_json(job)))
    compare_with_record("j", job, recorded)
    # A job without a schema keeps the one that was read at its first run.
    compare_with_record("j", LoadJob("data", "csv", "s/t", {"header": "true"}), recorded)
    export = ExportJob("s/t", "out", select=("event", "offset"))
    compare_with_record("j", export, {**json.loads(json.dumps(job_json(export))), "range": {}})


def test_secrets_of_a_source_are_not_recorded_and_may_change() -> None:
    def given(password: str) -> LoadJob:
        url = f"jdbc:postgresql://reader:{password}@db:5432/shop?ssl=true&password={password}&x=1"
        return LoadJob("-", "jdbc", "s/t", {"url": url, "password": password, "fs.s3a.access.key": password})

    recorded = json.dumps(job_json(given("hunter2")))
    assert "hunter2" not in recorded and "db:5432/shop?ssl=true&password=<not-recorded>&x=1" in recorded
    compare_with_record("j", given("hunter3"), json.loads(recorded))
    older = {**json.loads(recorded), "options": given("hunter2").options}
    compare_with_record("j", given("hunter3"), older)
    with pytest.raises(JobDiffers) as differs:
        compare_with_record("j", replace(given("hunter3"), options={"url": "jdbc:x", "password": "hunter3"}), older)
    assert "hunter" not in str(differs.value)


def test_a_job_that_an_older_version_recorded_is_not_staged() -> None:
    recorded = job_json(LoadJob("-", "jdbc", "s/t"))
    del recorded["stage"]
    compare_with_record("j", LoadJob("-", "jdbc", "s/t"), recorded)
    with pytest.raises(JobDiffers, match="begun with stage 'none', and is now given 'True'"):
        compare_with_record("j", LoadJob("-", "jdbc", "s/t", stage=True), recorded)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (LoadJob("other", "csv", "s/t"), "job 'j' was begun with source 'data', and is now given 'other'"),
        (LoadJob("data", "csv", "s/u"), "begun with target 's/t', and is now given 's/u'"),
        (LoadJob("data", "csv", "s/t", key="id"), "begun with key 'none', and is now given 'id'"),
        (LoadJob("data", "csv", "s/t", {"header": "true"}), "begun with options '{}', and is now given"),
        (LoadJob("data", "csv", "s/t", stage=True), "begun with stage 'none', and is now given 'True'"),
    ],
)
def test_another_job_under_the_same_id_is_refused(changed: LoadJob, complaint: str) -> None:
    recorded = job_json(LoadJob("data", "csv", "s/t"))
    with pytest.raises(JobDiffers, match=complaint) as refused:
        compare_with_record("j", changed, recorded)
    assert isinstance(refused.value, PravegaError)


def test_job_ids() -> None:
    assert checked_job_id("history-2026.01_a") == "history-2026.01_a"


@pytest.mark.parametrize("again", ["sep=;", "SEP=;"])
def test_an_option_is_given_once(again: str) -> None:
    assert parse_options(["sep=,", "header=true"]) == {"sep": ",", "header": "true"}
    with pytest.raises(InvalidArgument, match="again; give each option once"):
        parse_options(["sep=,", again])


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
