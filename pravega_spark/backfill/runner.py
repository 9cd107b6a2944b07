"""Runs a backfill job in a Spark session, and sums up what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pravega_common.errors import ConfigurationError
from pravega_spark.backfill.definition import ExportJob, LoadJob
from pravega_spark.backfill.export import RECORD_FOLDER, resolver, run_export
from pravega_spark.backfill.export_plan import partition_bytes_max
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.load import Chunks, run_load
from pravega_spark.commands.connection import authority_of, check_listens
from pravega_spark.commands.stream_names import parse_stream
from pravega_spark.gateway.worker_process import arm_failpoints
from pravega_spark.spark_python import spark_python
from pravega_spark.standalone.options import default_data_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Summary = dict[str, Any]
"""The JSON document that ``--json`` prints."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of a job; an empty ``master`` is spark-submit's, else ``local[*]``."""

    job_id: str
    controller: str
    master: str = ""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Settings of a load that may differ from run to run; an empty ``checkpoint`` folder is the one of this machine.

    ``segments`` is the number of segments of a stream that is created.
    """

    segments: int
    checkpoint: str
    chunks: Chunks


class Runner(Protocol):
    """Runs jobs, and returns their summaries."""

    def load(self, run: JobRun, job: LoadJob, settings: LoadSettings) -> Summary: ...

    def export(self, run: JobRun, job: ExportJob, chunk_bytes: int | None) -> Summary:
        """``chunk_bytes``: how much of the stream one Spark job reads; None to choose it by the cores."""
        ...


class SparkRunner:
    """Runs each job in a Spark session of its own."""

    def load(self, run: JobRun, job: LoadJob, settings: LoadSettings) -> Summary:
        return _in_session(run, lambda spark: _load(spark, run, job, settings))

    def export(self, run: JobRun, job: ExportJob, chunk_bytes: int | None) -> Summary:
        return _in_session(run, lambda spark: _export(spark, run, job, chunk_bytes))


def _in_session(run: JobRun, work: Callable[[SparkSession], Summary]) -> Summary:
    if find_spec("pyspark") is None:
        raise ConfigurationError("a backfill runs on Spark; install it with: pip install 'pravega-spark[spark]'")
    arm_failpoints()
    check_listens(run.controller)
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not os.environ.get("PYSPARK_PYTHON") and (run.master or "local").startswith("local") and not is_submitted:
        # By default Spark takes python3 of the path, not the interpreter that runs this.
        os.environ["PYSPARK_PYTHON"] = spark_python()
    builder = SparkSession.builder.appName(f"pravega-spark backfill {run.job_id}")
    # Its bars and ours would write over each other.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if run.master:
        builder = builder.master(run.master).config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        return work(spark)
    finally:
        spark.stop()


def _load(spark: SparkSession, run: JobRun, job: LoadJob, settings: LoadSettings) -> Summary:
    scope, stream = parse_stream(job.target)
    sink = {
        **cluster_options(run.controller),
        "scope": scope,
        "stream": stream,
        "default_num_segments": str(settings.segments),
    }
    folder = JobFolder(spark, f"{_checkpoint_base(spark, settings.checkpoint)}/{run.job_id}")
    if job.is_of_files:
        job = replace(job, source=_absolute(spark, job.source))
    result = run_load(spark, run.job_id, job, folder, sink, settings.chunks)
    return {
        "job_id": run.job_id,
        "into": job.target,
        "rows": result.rows,
        "commits": result.batches,
        "rows_before": result.rows_before,
        "is_before_exact": result.is_before_exact,
    }


def cluster_options(controller: str) -> dict[str, str]:
    """The options that name the cluster, with the authority that a command finds by itself."""
    ca_file = authority_of(controller)
    return {"controller": controller, "ca_file": ca_file} if ca_file else {"controller": controller}


def _checkpoint_base(spark: SparkSession, given: str) -> str:
    if given:
        return _absolute(spark, given)
    if not _is_local(spark):
        raise ConfigurationError(
            f"on the cluster {spark.sparkContext.master} a job's memory must be where every driver finds it: "
            "give --checkpoint FOLDER on a shared file system"
        )
    return str(default_data_dir() / "backfill")


def _absolute(spark: SparkSession, path: str) -> str:
    """Makes a local path absolute, so that a job goes on from any working directory."""
    return path if "://" in path or not _is_local(spark) else str(Path(path).absolute())


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _export(spark: SparkSession, run: JobRun, job: ExportJob, chunk_bytes: int | None) -> Summary:
    job = replace(job, target=_absolute(spark, job.target))
    scope, stream = parse_stream(job.stream)
    source = {
        **cluster_options(run.controller),
        "scope": scope,
        "stream": stream,
        "allow_create_scope": "false",
        "allow_create_stream": "false",
        "max_partition_bytes": str(partition_bytes_max),
    }
    folder = JobFolder(spark, f"{job.target.rstrip('/')}/{RECORD_FOLDER}/{run.job_id}")
    result = run_export(spark, run.job_id, job, folder, source, resolver(run.controller, job.stream), chunk_bytes)
    return {
        "job_id": run.job_id,
        "into": job.target,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.size_bytes,
        "done_before": result.is_repeated,
    }
