"""Exports a range of a stream into Parquet files, a chunk after the other; a run goes on after the last whole chunk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pravega_common.errors import InvalidArgument, StreamNotFound, UnknownOutcome
from pravega_common.model.segments import SegmentOffsets
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.stream_cut import StreamCut
from pravega_spark.backfill.definition import ExportJob, compare_with_record, job_json
from pravega_spark.backfill.export_plan import chunk_bytes_for, chunks_of_plan, divided
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.progress import ChunkProgress, ProgressDisplay, progress_of_stages
from pravega_spark.backfill.row_by_row import check_row_by_row
from pravega_spark.backfill.spark_errors import sentence_of
from pravega_spark.commands.connection import cluster_address
from pravega_spark.commands.cuts import resolve_position
from pravega_spark.commands.stream_names import parse_stream
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_FOLDER: Final = "_pravega-spark"
"""The folder of records in the target; readers of Parquet skip names that begin with an underscore."""
PLAN, FILES, DONE = "plan.json", "files.json", "done.json"
CHUNKS: Final = "chunks"
"""The folder of the chunks until the job is done: the record of each that is whole, and the files of each attempt."""
_OLDER_ATTEMPT: Final = "attempt-"
"""So begin the folders of attempts of older versions, and of one without rows: each run removes them."""
AFTER_PLAN: Final = register("spark.export.after_plan")
BEFORE_CHUNK: Final = register("spark.export.before_chunk")
AFTER_CHUNK: Final = register("spark.export.after_chunk")
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
    chunk_bytes: int | None = None,
) -> ExportResult:
    """Exports the range once. ``folder`` is the job's, in the target.

    The first run alone calls ``resolve`` and divides the range, by ``chunk_bytes`` or by the cores of the cluster.
    """
    with folder.run_alone(job_id):
        plan = folder.read(PLAN)
        if plan is None:
            plan = {**job_json(job), **_range(job, resolve)}
            # A source or expression that cannot work fails before the job is recorded, so that a slip costs no job id.
            rows = _rows(spark, job, source)
            _check_selected(spark, job, source)
            _check_partitions(job, rows.columns)
            _check_can_be_written(rows, job, folder)
            size_bytes = chunk_bytes or chunk_bytes_for(spark.sparkContext.defaultParallelism)
            plan["chunks"] = divided(source, plan["range"], size_bytes)
            folder.create(PLAN, plan)
        else:
            compare_with_record(job_id, job, plan)
        failpoint(AFTER_PLAN)
        done = folder.read(DONE)
        if done is not None:
            return ExportResult(done["rows"], done["files"], done["bytes"], is_repeated=True)
        written = folder.read(FILES)
        if written is None:
            written = _together(job_id, folder, _write(spark, job_id, job, folder, source, plan))
            failpoint(BEFORE_FILES)
            folder.create(FILES, written)
        _publish(job, folder, written)
        failpoint(BEFORE_DONE)
        summary = {"rows": written["rows"], "files": len(written["files"]), "bytes": written["bytes"]}
        folder.create(DONE, summary)
        folder.delete(f"{folder.path}/{CHUNKS}")
        _remove_older_attempts(folder)
        return ExportResult(summary["rows"], summary["files"], summary["bytes"], is_repeated=False)


def resolver(controller: str, stream: str) -> Resolve:
    """Returns the function that resolves ``earliest``, ``latest``, a time or the text of a stream cut to a position."""

    def resolve(text: str, as_end: bool) -> SegmentOffsets:
        scope, name = parse_stream(stream)
        with StreamClient(cluster_address(controller)) as client:
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
    spark: SparkSession, job_id: str, job: ExportJob, folder: JobFolder, source: dict[str, str], plan: dict[str, Any]
) -> list[dict[str, Any]]:
    """Writes the chunks that no former run has recorded, one after the other; returns the records of all."""
    chunks = chunks_of_plan(plan)
    folder.make(f"{folder.path}/{CHUNKS}")
    recorded = [folder.read(_record_of(index)) for index in range(len(chunks))]
    _remove_attempts(folder, {record["attempt"] for record in recorded if record is not None})
    sizes = {index: chunk.size_bytes for index, chunk in enumerate(chunks)}
    progress = ChunkProgress(sizes, lambda: progress_of_stages(spark))
    records = []
    with ProgressDisplay(progress.now):
        for index, chunk in enumerate(chunks):
            record = recorded[index]
            progress.begin(index)
            if record is None:
                cuts = {"start_stream_cut": chunk.start, "end_stream_cut": chunk.end}
                record = _write_chunk(spark, job_id, job, folder, {**source, **cuts}, index)
                progress.wrote(record["rows"])
                failpoint(BEFORE_CHUNK)
                folder.create(_record_of(index), record)
                failpoint(AFTER_CHUNK)
            records.append(record)
    return records


def _write_chunk(
    spark: SparkSession, job_id: str, job: ExportJob, folder: JobFolder, source: dict[str, str], index: int
) -> dict[str, Any]:
    """Writes the rows of a chunk into a folder of this attempt; returns the chunk's record."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    attempt = f"{index:05d}-{uuid.uuid4().hex}"
    path = f"{folder.path}/{CHUNKS}/{attempt}"
    observed = Observation("backfill")
    counted = _rows(spark, job, source).observe(observed, F.count(F.lit(1)).alias("rows"))
    counted.write.partitionBy(*job.partition_by).parquet(path)
    rows = observed.get.get("rows")
    if rows is None:
        raise UnknownOutcome(f"job '{job_id}' has written {path}, but Spark did not say how many rows; run it again")
    files = [{"name": name, "bytes": size} for name, size in folder.files(path)]
    return {"rows": int(rows), "attempt": attempt, "files": files}


def _record_of(chunk: int) -> str:
    return f"{CHUNKS}/{chunk:05d}.json"


def _together(job_id: str, folder: JobFolder, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The files of all chunks, and their names in the target, which depend on the job alone."""
    every = [(record["attempt"], item) for record in records for item in record["files"]]
    return {
        "rows": sum(record["rows"] for record in records),
        "bytes": sum(item["bytes"] for _, item in every),
        "attempt": f"{folder.path}/{CHUNKS}",
        "files": [
            {"from": f"{attempt}/{item['name']}", "to": _target_name(item["name"], f"{job_id}-{index:05d}")}
            for index, (attempt, item) in enumerate(every)
        ],
    }


def _rows(spark: SparkSession, job: ExportJob, source: dict[str, str]) -> DataFrame:
    frame = spark.read.format("pravega").options(**source).load()
    return frame.selectExpr(*job.select) if job.select else frame


def _check_selected(spark: SparkSession, job: ExportJob, source: dict[str, str]) -> None:
    """``InvalidArgument`` for what is computed over several rows: it would be, for each chunk by itself."""
    from pyspark.errors import AnalysisException

    if job.select:
        streamed = spark.readStream.format("pravega").options(**source).load()
        try:
            check_row_by_row(spark, streamed.selectExpr(*job.select))
        except AnalysisException as error:
            raise InvalidArgument(
                f"--select makes each row of one event ({sentence_of(error)}); export the events, and compute that of "
                "the files"
            ) from error


def _check_partitions(job: ExportJob, columns: list[str]) -> None:
    for name in job.partition_by:
        if name not in columns:
            raise InvalidArgument(f"--partition-by {name} is no column of the export: it has {', '.join(columns)}")
    if {*job.partition_by} == {*columns}:
        raise InvalidArgument(f"--partition-by {', '.join(job.partition_by)} leaves no column for the files")


def _check_can_be_written(rows: DataFrame, job: ExportJob, folder: JobFolder) -> None:
    """Writes no rows: Spark says only then that a column is there twice, or of a type that Parquet has not."""
    path = f"{folder.path}/{_OLDER_ATTEMPT}{uuid.uuid4().hex}"
    try:
        rows.limit(0).write.partitionBy(*job.partition_by).parquet(path)
    finally:
        folder.delete(path)


def _target_name(name: str, stem: str) -> str:
    """Returns the name with another stem: the folders before it and all endings (``.snappy.parquet``) stay."""
    folders, slash, last = name.rpartition("/")
    return f"{folders}{slash}{stem}{last[last.index('.') :] if '.' in last else ''}"


def _publish(job: ExportJob, folder: JobFolder, written: dict[str, Any]) -> None:
    """Moves the files into the target, under names that depend on the job alone."""
    target = job.target.rstrip("/")
    for above in sorted({item["to"].rpartition("/")[0] for item in written["files"]}):
        folder.make(f"{target}/{above}".rstrip("/"))
    for index, item in enumerate(written["files"]):
        folder.move(f"{written['attempt']}/{item['from']}", f"{target}/{item['to']}")
        if index == 0:
            failpoint(AFTER_FIRST_MOVE)


def _remove_attempts(folder: JobFolder, kept: Collection[str]) -> None:
    """Removes the attempts at chunks that are not ``kept``, and those of older versions."""
    for name in folder.folders(f"{folder.path}/{CHUNKS}"):
        if name not in kept:
            folder.delete(f"{folder.path}/{CHUNKS}/{name}")
    _remove_older_attempts(folder)


def _remove_older_attempts(folder: JobFolder) -> None:
    for name in folder.folders(folder.path):
        if name.startswith(_OLDER_ATTEMPT):
            folder.delete(f"{folder.path}/{name}")
