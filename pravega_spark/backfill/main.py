"""Runs a backfill job from its arguments: the body of ``pravega-spark backfill`` and of ``scripts/backfill.py``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_spark.backfill import arguments
from pravega_spark.backfill.definition import ExportJob, LoadJob, checked_stream
from pravega_spark.backfill.export import RECORD_FOLDER, resolver, run_export
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.load import Chunks, run_load
from pravega_spark.commands.connection import check_listens
from pravega_spark.standalone.options import default_data_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM: Final = "pravega-spark backfill"
interrupted_status: Final = 130
partition_bytes_max: Final = 128 * 1024 * 1024
"""What one task of an export reads about, where the store knows event boundaries to split at."""
_OUR_ERROR: Final = re.compile(r"(?:pravega_common|pravega_streams|pravega_spark)[\w.]*\.\w+: (.+)")


def main(given: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """The exit status: 0 done, 1 failed with one sentence on stderr, 2 wrong usage, 130 interrupted."""
    parsed = arguments.parser(program).parse_args(given)
    try:
        summary = _run(parsed)
    except KeyboardInterrupt:
        print(f"{program}: stopped; run it again with --job-id {parsed.job_id} to go on", file=sys.stderr)
        return interrupted_status
    except PravegaError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        # Spark's own errors, with whatever it was that failed inside.
        print(f"{program}: job '{parsed.job_id}' failed: {sentence_of(error)}", file=sys.stderr)
        return 1
    _say(summary, parsed.json)
    return 0


def _run(parsed: argparse.Namespace) -> dict[str, Any]:
    if find_spec("pyspark") is None:
        raise ConfigurationError("a backfill runs on Spark; install it with: pip install 'pravega-spark[spark]'")
    if parsed.kind == "load":
        job, chunks = arguments.load_job(parsed), arguments.chunks_of(parsed)
        check_listens(parsed.controller)
        return _in_session(parsed, lambda spark: _load(spark, parsed, job, chunks))
    export = arguments.export_job(parsed)
    check_listens(parsed.controller)
    return _in_session(parsed, lambda spark: _export(spark, parsed, export))


def _in_session(parsed: argparse.Namespace, work: Any) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not os.environ.get("PYSPARK_PYTHON") and (parsed.master or "local").startswith("local") and not is_submitted:
        # Spark takes python3 of the path unless told otherwise, not the interpreter that runs this.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(f"pravega-spark backfill {parsed.job_id}")
    # Its bars and ours would write over each other.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if parsed.master:
        builder = builder.master(parsed.master).config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        summary: dict[str, Any] = work(spark)
        return summary
    finally:
        spark.stop()


def _load(spark: SparkSession, parsed: argparse.Namespace, job: LoadJob, chunks: Chunks) -> dict[str, Any]:
    scope, stream = checked_stream(job.target)
    sink = {
        "controller": parsed.controller,
        "scope": scope,
        "stream": stream,
        "default_num_segments": str(parsed.segments),
    }
    folder = JobFolder(spark, f"{_checkpoint_base(spark, parsed.checkpoint)}/{parsed.job_id}")
    if job.is_of_files:
        job = replace(job, source=_absolute(spark, job.source))
    result = run_load(spark, parsed.job_id, job, folder, sink, chunks)
    return {"job_id": parsed.job_id, "into": job.target, "rows": result.rows, "commits": result.batches}


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
    """A job goes on from wherever it is started again."""
    return path if "://" in path or not _is_local(spark) else str(Path(path).absolute())


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _export(spark: SparkSession, parsed: argparse.Namespace, job: ExportJob) -> dict[str, Any]:
    job = replace(job, target=_absolute(spark, job.target))
    scope, stream = checked_stream(job.stream)
    source = {
        "controller": parsed.controller,
        "scope": scope,
        "stream": stream,
        "allow_create_scope": "false",
        "allow_create_stream": "false",
        "max_partition_bytes": str(partition_bytes_max),
    }
    folder = JobFolder(spark, f"{job.target.rstrip('/')}/{RECORD_FOLDER}/{parsed.job_id}")
    result = run_export(spark, parsed.job_id, job, folder, source, resolver(parsed.controller, job.stream))
    return {
        "job_id": parsed.job_id,
        "into": job.target,
        "rows": result.rows,
        "files": result.files,
        "bytes": result.size_bytes,
        "done_before": result.is_repeated,
    }


def _say(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    before = " (done before, nothing was written now)" if summary.get("done_before") else ""
    counts = ", ".join(f"{summary[name]:,} {name}" for name in ("rows", "commits", "files", "bytes") if name in summary)
    print(f"job {summary['job_id']} into {summary['into']}: {counts}{before}")


def sentence_of(error: Exception) -> str:
    """What a person needs of an error that went through Spark: our own sentence in it if there is one."""
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    # Py4J says which Java object was called first, and what came of it then.
    told = [line for line in lines if not line.startswith("An error occurred while calling ")]
    return (told or lines or [type(error).__name__])[0]
