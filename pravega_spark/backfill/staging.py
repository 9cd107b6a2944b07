"""Writes the rows of a load to files once, so that a source of any kind is loaded in chunks.

A database, a table or a topic answers a second question with other rows in another order, so what a chunk was can be
decided once only: all rows are written to Parquet files in a folder of this attempt, and the record of their names
(``staged.json``) is made when all are there. From then on these files are the source, and the checkpoint of a job of
files remembers which are written. A run that is killed before the record begins with another attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.backfill.definition import LoadJob
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.job_memory import CHECKPOINT, JobMisplaced, recorded
from pravega_spark.backfill.progress import ProgressDisplay, progress_of_stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGED: Final = "staged.json"
LOADED: Final = "loaded.json"
FOLDER: Final = "staged"
"""The folder of the attempts, until all of their rows are in the stream."""
staging_version: Final = 1
staged_rows_per_file_default: Final = 100_000
"""Rows of a file: some 100 MB of events of 1 KB, so that a chunk of 256 MiB has a few files."""
BEFORE_STAGED: Final = register("spark.load.before_staged")
AFTER_STAGED: Final = register("spark.load.after_staged")
BEFORE_LOADED: Final = register("spark.load.before_loaded")


class Staging:
    """The staged rows of one load. Only one run of a job may stage at a time."""

    def __init__(self, job_id: str, folder: JobFolder) -> None:
        self._job_id = job_id
        self._folder = folder

    def is_loaded(self) -> bool:
        """Tells whether a former run has written all staged rows to the stream."""
        return recorded(self._folder, LOADED, staging_version) is not None

    def staged(self, spark: SparkSession, job: LoadJob, events: Callable[[], DataFrame], rows_per_file: int) -> LoadJob:
        """Returns the job that loads the staged files, which this run writes if no former one did.

        ``events`` returns the rows as the sink takes them. ``JobMisplaced`` if files or their record were deleted.
        """
        record = recorded(self._folder, STAGED, staging_version)
        if record is None:
            record = self._write(spark, events(), rows_per_file)
        path = f"{self._folder.path}/{FOLDER}/{record['attempt']}"
        names = {name for name, _ in self._folder.files(path)} if self._folder.exists(path) else set()
        missing = sorted({item["name"] for item in record["files"]} - names)
        if missing:
            raise self._misplaced(f"{len(missing)} staged files of {path} are not there any more, as {missing[0]}")
        return replace(
            job,
            source=path,
            source_format="parquet",
            options={},
            schema=record["schema"],
            event="event",
            key="routing_key" if job.key else "",
            stage=False,
        )

    def finish(self) -> None:
        """Notes that all staged rows are in the stream, and deletes their files."""
        failpoint(BEFORE_LOADED)
        if recorded(self._folder, LOADED, staging_version) is None:
            self._folder.create(LOADED, {"version": staging_version})
        self._folder.delete(f"{self._folder.path}/{FOLDER}")

    def _write(self, spark: SparkSession, events: DataFrame, rows_per_file: int) -> dict[str, Any]:
        planned = f"{self._folder.path}/{CHECKPOINT}/offsets"
        if self._folder.exists(planned) and self._folder.files(planned):
            raise self._misplaced(f"{self._folder.path}/{STAGED} is not there any more")
        attempts = f"{self._folder.path}/{FOLDER}"
        self._folder.delete(attempts)
        attempt = uuid.uuid4().hex
        path = f"{attempts}/{attempt}"
        with ProgressDisplay(lambda: replace(progress_of_stages(spark), doing="staging")):
            # Not compressed: the chunks of the load are sized by the bytes of these files.
            writer = events.write.option("maxRecordsPerFile", rows_per_file).option("compression", "none")
            writer.parquet(path)
        failpoint(BEFORE_STAGED)
        record = {
            "version": staging_version,
            "attempt": attempt,
            "schema": events.schema.json(),
            "files": [{"name": name, "bytes": size} for name, size in self._folder.files(path)],
        }
        self._folder.create(STAGED, record)
        failpoint(AFTER_STAGED)
        return record

    def _misplaced(self, what: str) -> JobMisplaced:
        return JobMisplaced(
            f"{what}, so nobody knows which rows of job '{self._job_id}' are in the stream: restore it, or load "
            "everything again into another stream under another --job-id"
        )
