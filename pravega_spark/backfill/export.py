"""Exports a range of a stream into Parquet files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pravega_common.errors import InvalidArgument, StreamNotFound, UnknownOutcome
from pravega_common.model.segments import SegmentOffsets
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.stream_cut import StreamCut
from pravega_spark.backfill.definition import ExportJob, compare_with_record, job_json
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.load import progress_of_stages
from pravega_spark.backfill.progress import ProgressDisplay
from pravega_spark.commands.cuts import resolve_position
from pravega_spark.commands.stream_names import parse_stream
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_FOLDER: Final = "_pravega-spark"
"""The folder of records in the target; readers of Parquet skip names that begin with an underscore."""
PLAN, FILES, DONE = "plan.json", "files.json", "done.json"
AFTER_PLAN: Final = register("spark.export.after_plan")
BEFORE_FILES: Final = register("spark.export.before_files")
AFTER_FIRST_MOVE: Final = register("spark.export.after_first_move")
BEFORE_DONE: Final = register("spark.export.before_done")


Resolve = Callable[[str, bool], SegmentOffsets]
"""The position that a text names; the flag says whether it is an end."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The counts of a whole job. ``is_repeated``: a former run had finished, and this one did nothing."""

    rows: int
    files: int
    size_bytes: int
    is_repeated: bool


def run_export(
    spark: SparkSession,
    job_id: str,
    job: ExportJob,
    folder: JobFolder,
    source: dict[str, str],
    resolve: Resolve,
) -> ExportResult:
    """Exports the range once. ``folder`` is the job's, in the target; ``resolve`` is called at the first run alone."""
    plan = folder.read(PLAN)
    if plan is None:
        plan = {**job_json(job), **_range(job, resolve)}
        # A source or expression that cannot work fails before the job is recorded, so that a slip costs no job id.
        _check_partitions(job, _rows(spark, job, source).columns)
        folder.create(PLAN, plan)
    else:
        compare_with_record(job_id, job, plan)
    failpoint(AFTER_PLAN)
    done = folder.read(DONE)
    if done is not None:
        return ExportResult(done["rows"], done["files"], done["bytes"], is_repeated=True)
    written = folder.read(FILES)
    if written is None:
        written = _write(spark, job_id, job, folder, {**source, **plan["range"]})
        failpoint(BEFORE_FILES)
        folder.create(FILES, written)
    _publish(job, folder, written)
    failpoint(BEFORE_DONE)
    summary = {"rows": written["rows"], "files": len(written["files"]), "bytes": written["bytes"]}
    folder.create(DONE, summary)
    _remove_attempts(folder)
    return ExportResult(summary["rows"], summary["files"], summary["bytes"], is_repeated=False)


def resolver(controller: str, stream: str) -> Resolve:
    """Returns the function that resolves ``earliest``, ``latest``, a time or the text of a stream cut to a position."""

    def resolve(text: str, as_end: bool) -> SegmentOffsets:
        scope, name = parse_stream(stream)
        with StreamClient(controller) as client:
            if not client.controller.stream_exists(scope, name):
                raise StreamNotFound(f"stream '{stream}' does not exist at {controller}, so nothing can be exported")
            return resolve_position(client, controller, scope, name, text, as_end=as_end)

    return resolve


def _range(job: ExportJob, resolve: Resolve) -> dict[str, Any]:
    scope, stream = parse_stream(job.stream)
    start = StreamCut(scope, stream, resolve(job.start, False)).as_text()
    end = StreamCut(scope, stream, resolve(job.end, True)).as_text()
    return {"range": {"start_stream_cut": start, "end_stream_cut": end}}


def _write(
    spark: SparkSession, job_id: str, job: ExportJob, folder: JobFolder, source: dict[str, str]
) -> dict[str, Any]:
    """Writes all rows into a folder of this attempt, and removes the folders of former ones."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    _remove_attempts(folder)
    attempt = f"{folder.path}/attempt-{uuid.uuid4().hex}"
    observed = Observation("backfill")
    counted = _rows(spark, job, source).observe(observed, F.count(F.lit(1)).alias("rows"))
    with ProgressDisplay(lambda: progress_of_stages(spark)):
        counted.write.partitionBy(*job.partition_by).parquet(attempt)
    rows = observed.get.get("rows")
    if rows is None:
        raise UnknownOutcome(f"job '{job_id}' has written {attempt}, but Spark did not say how many rows; run it again")
    files = folder.files(attempt)
    return {
        "rows": int(rows),
        "bytes": sum(size for _, size in files),
        "attempt": attempt,
        "files": [
            {"from": name, "to": _target_name(name, f"{job_id}-{index:05d}")} for index, (name, _) in enumerate(files)
        ],
    }


def _rows(spark: SparkSession, job: ExportJob, source: dict[str, str]) -> DataFrame:
    frame = spark.read.format("pravega").options(**source).load()
    return frame.selectExpr(*job.select) if job.select else frame


def _check_partitions(job: ExportJob, columns: list[str]) -> None:
    for name in job.partition_by:
        if name not in columns:
            raise InvalidArgument(f"--partition-by {name} is no column of the export: it has {', '.join(columns)}")
    if {*job.partition_by} == {*columns}:
        raise InvalidArgument(f"--partition-by {', '.join(job.partition_by)} leaves no column for the files")


def _target_name(name: str, stem: str) -> str:
    """Returns the name with another stem: the folders before it and all endings (``.snappy.parquet``) stay."""
    folders, slash, last = name.rpartition("/")
    return f"{folders}{slash}{stem}{last[last.index('.') :] if '.' in last else ''}"


def _publish(job: ExportJob, folder: JobFolder, written: dict[str, Any]) -> None:
    """Moves the files into the target, under names that depend on the job alone."""
    for index, item in enumerate(written["files"]):
        folder.move(f"{written['attempt']}/{item['from']}", f"{job.target.rstrip('/')}/{item['to']}")
        if index == 0:
            failpoint(AFTER_FIRST_MOVE)


def _remove_attempts(folder: JobFolder) -> None:
    for name in folder.folders(folder.path):
        if name.startswith("attempt-"):
            folder.delete(f"{folder.path}/{name}")
