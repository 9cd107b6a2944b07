"""Loads files, or the rows of any other Spark format, into a stream."""

from __future__ import annotations

import json
import logging
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pravega_common.errors import InvalidArgument, NotFound, PravegaError, UnknownOutcome
from pravega_common.model.transaction_sets import Sink
from pravega_common.runtime.system_time import system_time_ms
from pravega_spark.backfill.definition import LoadJob, compare_with_record, job_json
from pravega_spark.backfill.job_folder import JobFolder
from pravega_spark.backfill.job_memory import CHECKPOINT, RECORD, JobMemory, Target
from pravega_spark.backfill.progress import JobProgress, ProgressDisplay, progress_of_stages
from pravega_spark.backfill.row_by_row import check_row_by_row
from pravega_spark.backfill.spark_errors import sentence_of
from pravega_spark.backfill.staging import Staging, staged_rows_per_file_default
from pravega_spark.commands.connection import created_with_scope
from pravega_spark.ledger.batch import JOB_PREFIX
from pravega_spark.ledger.coordinator import TransactionCoordinator
from pravega_spark.ledger.job_claims import JobClaim, JobClaims, claims_segment
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import sink_columns
from pravega_streams.client import StreamClient
from pravega_streams.table.blocking_table import BlockingTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

poll_s: Final = 1
readable_wait_ms: Final = 1_000
"""How long the controller may wait until what it has decided can be read."""
_ALL_AGES: Final = "36500d"
"""Age that no file reaches: by default Spark skips files a week older than the newest one it has seen."""
looked_up_max: Final = 1_000
"""Files not found in a listing that are looked up one by one."""
_LOG_OFFSET: Final = re.compile(r"""["']logOffset["']\s*:\s*(-?\d+)""")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chunks:
    """The size of one transaction set: bytes, or files where their number is given.

    ``rows``: of a file of staged rows, which is the least that a transaction set has.
    """

    size_bytes: int
    files: int | None = None
    rows: int = staged_rows_per_file_default


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The counts of one run.

    ``rows_before``: of former runs; at least as many where ``is_before_exact`` is false, since one of them was killed.
    """

    rows: int
    batches: int
    rows_before: int = 0
    is_before_exact: bool = True


def run_load(
    spark: SparkSession, job_id: str, job: LoadJob, folder: JobFolder, sink: dict[str, str], chunks: Chunks
) -> LoadResult:
    """Writes the rows that are not written yet. ``sink``: options of the sink (controller, scope, stream, …).

    ``JobMisplaced``, before anything is written: the folder is not the one that remembers what is written.
    """
    options = WriteOptions.parse(sink, Use.BATCH_WRITE)
    with folder.run_alone(job_id), StreamClient(options.controller) as client:
        table = BlockingTable(client.segments, claims_segment(options.scope))
        claims = JobClaims(table, system_time_ms)
        memory = JobMemory(job_id, folder, claims, _target(client, options), is_of_files=job.is_of_files or job.stage)
        query_id = memory.query_id()
        recorded = _recorded(spark, job_id, job, folder)
        claim = memory.claimed(query_id)
        if recorded.stage:
            return _load_staged(spark, claims, claim, recorded, folder, sink, chunks)
        if not recorded.is_of_files:
            written = _rows_on_record(client, Sink(f"{JOB_PREFIX}{claim.query_id}", options.destination))
            return _load_at_once(spark, claims, claim, recorded, sink, written)
        return _load_files(spark, claims, claim, recorded, folder, sink, chunks)


def _target(client: StreamClient, options: WriteOptions) -> Target:
    """Describes the stream of a load to its memory."""
    (scope, stream) = options.streams[0]

    def first_segment() -> int | None:
        try:
            if not client.controller.stream_exists(scope, stream):
                return None
            return min(item.segment_id for item in client.controller.epoch_segments(scope, stream, 0))
        except NotFound:
            return None

    def create() -> None:
        created_with_scope(client, scope, stream, options.stream_configuration)

    def knows(query_id: str) -> bool:
        return TransactionCoordinator(client).get(Sink(query_id, options.destination), 0)[1] >= 0

    return Target(options.destination, str(options.controller), first_segment, create, knows)


def _recorded(spark: SparkSession, job_id: str, job: LoadJob, folder: JobFolder) -> LoadJob:
    """Returns the job with the schema of its first run, which records it."""
    record = folder.read(RECORD)
    if record is not None:
        compare_with_record(job_id, job, record)
        return replace(job, schema=record["schema"])
    if job.is_of_files:
        _check_not_passed_over(job.source, folder)
    known = job
    if job.is_of_files and not job.schema:
        known = replace(job, schema=_reader(spark, job).load(job.source).schema.json())
    # A source or expression that cannot work fails before the job is recorded, so that a slip costs no job id.
    schema = _events(_rows(spark, known), known).schema
    sink_columns([(field.name, field.dataType.simpleString()) for field in schema.fields])
    if known.is_of_files:
        check_row_by_row(spark, _events(_streamed(spark, known, folder), known))
    folder.create(RECORD, job_json(known))
    return known


def _check_not_passed_over(source: str, folder: JobFolder) -> None:
    """``InvalidArgument`` for a single file that Spark takes for one of its own, and passes over with no error."""
    name = source.rpartition("/")[2]
    is_passed_over = name.startswith(".") or (name.startswith("_") and "=" not in name)
    if is_passed_over and folder.is_file(source):
        raise InvalidArgument(f"the name of '{source}' begins with '{name[0]}': Spark reads no such file; rename it")


def _reader(spark: SparkSession, job: LoadJob) -> Any:
    reader = spark.read.format(job.source_format).options(**job.options)
    return reader.schema(_schema(job.schema)) if job.schema else reader


def _rows(spark: SparkSession, job: LoadJob) -> DataFrame:
    """Reads the source as a batch."""
    reader = _reader(spark, job)
    rows: DataFrame = reader.load(job.source) if job.source not in ("", "-") else reader.load()
    return rows


def _schema(text: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text)) if text.startswith("{") else text


def _events(frame: DataFrame, job: LoadJob) -> DataFrame:
    columns = [f"{job.event_expression} AS event"]
    if job.key:
        columns.append(f"cast({job.key} AS string) AS routing_key")
    return frame.selectExpr(*columns)


# ---- files -----------------------------------------------------------------------------------------------------------


def _load_files(
    spark: SparkSession,
    claims: JobClaims,
    claim: JobClaim,
    job: LoadJob,
    folder: JobFolder,
    sink: dict[str, str],
    chunks: Chunks,
) -> LoadResult:
    before = _last_batch(folder)
    written = WrittenFiles(folder, f"{CHECKPOINT}/sources/0")
    files_before = frozenset(written.up_to(_log_offset_looked_at(folder, claim, before)))
    query = _begun(spark, job, folder, sink, chunks)
    watch = _QueryWatch(spark, query, job, written)
    was_exact = claim.is_exact and claim.last_batch == before
    failure: BaseException | None = None
    try:
        with ProgressDisplay(watch.progress):
            while not query.awaitTermination(poll_s):
                watch.note()
    except BaseException as error:  # An interrupt too: what is written until then is noted.
        failure = error
    query.stop()
    watch.note()
    last = _last_batch(folder)
    try:
        taken = written.up_to(_log_offset_of_batch(folder, last)) - files_before
        gone = [] if job.removes_files else watch.gone(folder, taken)
    except Exception as error:
        raise (failure or error) from None  # Nothing is noted, so that the next run looks.
    _note_rows(claims, claim, watch.rows, last, is_exact=was_exact and watch.has_counted(range(before + 1, last + 1)))
    if gone:
        raise _removed(gone, failure) from failure
    if failure is not None:
        raise failure
    return LoadResult(watch.rows, watch.batches, claim.rows, was_exact)


def _removed(gone: list[str], failure: BaseException | None) -> UnknownOutcome:
    """Says that input files were removed, after what else ended the load: no later run would say it."""
    ended = "" if failure is None else f"the load failed: {sentence_of(failure)}; and "
    if isinstance(failure, KeyboardInterrupt):
        ended = "the load was stopped; and "
    return UnknownOutcome(
        f"{ended}at least {len(gone)} input files were removed during the load, as {gone[0]}: whether their rows are "
        "written is not known, and no later run with this job id looks for them; load what is missing under another"
    )


def _begun(
    spark: SparkSession, job: LoadJob, folder: JobFolder, sink: dict[str, str], chunks: Chunks
) -> StreamingQuery:
    if chunks.files is None:
        limit = {"maxBytesPerTrigger": str(chunks.size_bytes)}
    else:
        limit = {"maxFilesPerTrigger": str(chunks.files)}
    return (
        _events(_streamed(spark, job, folder, limit), job)
        .writeStream.format("pravega")
        .options(**sink)
        .option("checkpointLocation", f"{folder.path}/{CHECKPOINT}")
        .trigger(availableNow=True)
        .start()
    )


def _streamed(
    spark: SparkSession, job: LoadJob, folder: JobFolder, limit: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Reads the files as a stream."""
    reader = spark.readStream.format(job.source_format).options(**job.options).schema(_schema(job.schema))
    reader = reader.option("maxFileAge", _ALL_AGES).options(**limit)
    return reader.load(_streamed_path(folder, job.source))


def _last_batch(folder: JobFolder) -> int:
    """Returns the last batch that Spark has noted as committed; -1 before the first."""
    commits = f"{folder.path}/{CHECKPOINT}/commits"
    names = [name for name, _ in folder.files(commits)] if folder.exists(commits) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _log_offset_looked_at(folder: JobFolder, claim: JobClaim, before: int) -> int:
    """Returns how far former runs looked whether their files are still there: as far as one of them ended. One that was
    killed did not look."""
    looked_at = _log_offset_of_batch(folder, min(claim.last_batch, before))
    # Spark keeps the offsets of a hundred batches.
    return looked_at if looked_at >= 0 or claim.last_batch < 0 else _log_offset_of_batch(folder, before)


def _log_offset_of_batch(folder: JobFolder, batch: int) -> int:
    """Returns how far the log of the source goes at the end of a batch; -1 before the first."""
    text = folder.read_text(f"{CHECKPOINT}/offsets/{batch}") if batch >= 0 else None
    return log_offset_of(text.splitlines()[-1]) if text else -1


def _note_rows(claims: JobClaims, claim: JobClaim, rows: int, last_batch: int, *, is_exact: bool) -> None:
    try:
        claims.note_rows(claim, rows, last_batch, is_exact=is_exact)
    except PravegaError as error:
        _log.warning("the rows of job '%s' are written, but later runs will not count them: %s", claim.job_id, error)


def _streamed_path(folder: JobFolder, source: str) -> str:
    """Returns the path to stream from: Spark takes folders and patterns, so a file becomes a pattern of its own."""
    return f"{source[:-1]}[{source[-1]}]" if folder.is_file(source) else source


class _QueryWatch:
    """The rows and the share of the input that a query has written. The share counts the bytes of finished files."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, job: LoadJob, written: WrittenFiles) -> None:
        self._spark = spark
        self._query = query
        self._job = job
        self._written = written
        self._sizes: dict[str, int] | None = None
        self._rows: dict[int, int] = {}
        self._log_offset = -1
        self._fraction: float | None = None
        self._fraction_of = -1

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def batches(self) -> int:
        return sum(1 for rows in self._rows.values() if rows)

    def has_counted(self, batches: Iterable[int]) -> bool:
        return all(batch in self._rows for batch in batches)

    def note(self) -> None:
        """Notes the progress of new batches; call it often, for Spark keeps only the last hundred."""
        for item in self._query.recentProgress:
            self._rows[item.batchId] = item.numInputRows
            self._log_offset = max(self._log_offset, log_offset_of(item.sources[0].endOffset))

    def progress(self) -> JobProgress:
        if self._log_offset > self._fraction_of:
            self._fraction_of = self._log_offset
            self._fraction = self._share_of(self._written.up_to(self._log_offset))
        return JobProgress(self.rows, self._fraction)

    def gone(self, folder: JobFolder, paths: Iterable[str]) -> list[str]:
        """Returns input files of this run that are gone, up to a limit: Spark lists them when it begins, and passes
        over one that is gone when its chunk is read, with no error."""
        taken = set(paths)
        not_listed = sorted(taken - self._input_sizes().keys()) if taken else []
        return [path for path in not_listed[:looked_up_max] if not folder.exists(path)]

    def _share_of(self, paths: Iterable[str]) -> float | None:
        if self._sizes is None:
            self._sizes = self._input_sizes()
        total = sum(self._sizes.values())
        return sum(self._sizes.get(path, 0) for path in paths) / total if total else None

    def _input_sizes(self) -> dict[str, int]:
        """Returns the lengths of all input files. Without the column of their content Spark does not open them."""
        from pyspark.errors import AnalysisException

        reader = self._spark.read.format("binaryFile")
        for name, value in self._job.options.items():
            if name.lower() in ("pathglobfilter", "recursivefilelookup"):
                reader = reader.option(name, value)
        try:
            rows = reader.load(self._job.source).select("path", "length").collect()
        except AnalysisException:  # Nothing is there.
            return {}
        return {_plain_path(row["path"]): row["length"] for row in rows}


def log_offset_of(offset: str | None) -> int:
    """Returns the number in a file source's offset, ``{"logOffset": 3}``; -1 without one.

    Spark 4.0 shows it as Python does, in single quotes.
    """
    found = _LOG_OFFSET.search(offset or "")
    return -1 if found is None else int(found[1])


class WrittenFiles:
    """The input files of finished batches, from the log of Spark's file source.

    The log has a file for every planned batch, with a line ``{"path": …, "timestamp": …, "batchId": …}`` for each input
    file; every tenth or so is called ``N.compact`` and repeats all before it, which are then deleted.
    """

    def __init__(self, folder: JobFolder, log: str) -> None:
        self._folder = folder
        self._log = log
        self._up_to = -1
        self._paths: set[str] = set()

    def up_to(self, log_offset: int) -> set[str]:
        """Returns the paths of all batches up to this one; reads only the log's files since the last call."""
        number = log_offset
        while number > self._up_to:
            text = self._folder.read_text(f"{self._log}/{number}")
            if text is not None:
                self._add(text)
            elif (text := self._folder.read_text(f"{self._log}/{number}.compact")) is not None:
                self._add(text)
                break
            number -= 1
        self._up_to = max(self._up_to, log_offset)
        return self._paths

    def _add(self, text: str) -> None:
        self._paths.update(_plain_path(json.loads(line)["path"]) for line in text.splitlines()[1:])


def _plain_path(path: str) -> str:
    """Normalises a path: ``file:///a%20b`` and ``file:/a b`` are the same."""
    scheme, colon, rest = path.partition(":")
    if not colon:
        return path
    rest = urllib.parse.unquote(rest)
    return f"{scheme}:/{rest.lstrip('/')}" if scheme == "file" else f"{scheme}:{rest}"


# ---- other formats, in chunks ----------------------------------------------------------------------------------------


def _load_staged(
    spark: SparkSession,
    claims: JobClaims,
    claim: JobClaim,
    job: LoadJob,
    folder: JobFolder,
    sink: dict[str, str],
    chunks: Chunks,
) -> LoadResult:
    """Loads the files of the staged rows, as a job of files does, and deletes them when all are written."""
    staging = Staging(claim.job_id, folder)
    if staging.is_loaded():
        staging.finish()
        return LoadResult(0, 0, claim.rows, claim.is_exact)
    staged = staging.staged(spark, job, lambda: _events(_rows(spark, job), job), chunks.rows)
    result = _load_files(spark, claims, claim, staged, folder, sink, chunks)
    staging.finish()
    return result


# ---- other formats, at once ------------------------------------------------------------------------------------------


def _rows_on_record(client: StreamClient, sink: Sink) -> int | None:
    """Returns the rows of the one batch of a job that its sink has on record; None if it has none."""
    recorded, last = TransactionCoordinator(client).get(sink, 0, readable_wait_ms)
    return recorded.events if last >= 0 else None


def _load_at_once(
    spark: SparkSession, claims: JobClaims, claim: JobClaim, job: LoadJob, sink: dict[str, str], written: int | None
) -> LoadResult:
    """Writes one transaction set under the claim's id, unless a former run wrote it.

    The claim says so, or the sink's record (``written``: its rows) where the former run died before it noted them: the
    record ends 90 days after its last use, or by ``sink forget``, and the claim does not. The source is not read again:
    it may have other rows by now, and the sink refuses such a replay.
    """
    if claim.last_batch >= 0:
        return LoadResult(0, 0, claim.rows, claim.is_exact)
    if written is not None:
        _note_rows(claims, claim, written, 0, is_exact=True)
        return LoadResult(0, 0, written)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observed = Observation("backfill")
    counted = _events(_rows(spark, job), job).observe(observed, F.count(F.lit(1)).alias("rows"))
    with ProgressDisplay(lambda: progress_of_stages(spark)):
        counted.write.format("pravega").mode("append").options(**sink).option("job_id", claim.query_id).save()
    rows = observed.get.get("rows")
    if rows is None:
        raise UnknownOutcome(f"job '{claim.job_id}' is written, but Spark did not say how many rows it had")
    _note_rows(claims, claim, int(rows), 0, is_exact=True)
    return LoadResult(int(rows), 1)
