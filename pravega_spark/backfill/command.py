"""``backfill load|export``: copies files into a stream and a stream into files, on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final

import typer

from pravega_common.errors import InvalidArgument, PravegaError
from pravega_common.names import segments_per_stream_max
from pravega_spark.backfill.definition import (
    FILE_FORMATS,
    ExportJob,
    LoadJob,
    checked_job_id,
    chunk_bytes_default,
    parse_options,
    reader_of,
)
from pravega_spark.backfill.load import Chunks
from pravega_spark.backfill.runner import JobRun, LoadSettings, Runner, SparkRunner, Summary
from pravega_spark.backfill.source_format import found_format
from pravega_spark.backfill.spark_errors import sentence_of
from pravega_spark.backfill.staging import staged_rows_per_file_default
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, START_HELP, ControllerOption
from pravega_spark.commands.output import counted, print_json, say
from pravega_spark.commands.quantities import parse_bytes
from pravega_spark.commands.stream_names import parse_stream
from pravega_spark.source.data_loss import head_advice, with_advice

HELP: Final = "Load files into a stream, and export a stream into files: exactly once by job id."
interrupted_status: Final = 130

JobIdOption = Annotated[str, typer.Option(metavar="ID", help="Run it again with the same id to go on.")]
MasterOption = Annotated[str, typer.Option(help="Spark's master; default: spark-submit's, else local[*].")]
JsonAtEndOption = Annotated[bool, typer.Option("--json", help="Print a JSON document at the end.")]


def add_to(application: typer.Typer) -> None:
    application.add_typer(_group("pravega-spark backfill", SparkRunner()), name="backfill")


def application(program: str, runner: Runner | None = None) -> typer.Typer:
    """Makes the application for a program of its own; ``program`` begins its error sentences."""
    return _group(program, runner or SparkRunner())


def _group(program: str, runner: Runner) -> typer.Typer:
    group = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    commands = BackfillCommands(program, runner)
    group.command()(commands.load)
    group.command()(commands.export)
    return group


class BackfillCommands:
    """The two commands; exit status 1 with one sentence on stderr when the job fails, 130 when it is interrupted."""

    def __init__(self, program: str, runner: Runner) -> None:
        self._program = program
        self._runner = runner

    def load(
        self,
        source: Annotated[
            str, typer.Argument(metavar="PATH", help="Folder, file or pattern; - for a format that has no path.")
        ],
        target: Annotated[str, typer.Argument(metavar="SCOPE/STREAM", help="Created if it is missing.")],
        job_id: JobIdOption,
        source_format: Annotated[
            str,
            typer.Option(
                "--format", help=f"{', '.join(FILE_FORMATS)} or any other; default: by the ending, or the files."
            ),
        ] = "",
        option: Annotated[
            list[str] | None, typer.Option(metavar="NAME=VALUE", help="For Spark's reader (repeat).")
        ] = None,
        schema: Annotated[
            str, typer.Option(metavar="DDL", help="Schema of the source; default: read from it at the first run.")
        ] = "",
        event: Annotated[
            str,
            typer.Option(metavar="EXPR", help="SQL for the event; default: JSON of all columns, or the lines of text."),
        ] = "",
        key: Annotated[str, typer.Option(metavar="EXPR", help="SQL for the routing key; default: none.")] = "",
        segments: Annotated[int, typer.Option(metavar="N", help="Segments of a stream that is created.")] = 1,
        chunk_bytes: Annotated[
            str, typer.Option(metavar="SIZE", help="Bytes of files for one commit, at least one file (256MiB).")
        ] = "",
        chunk_files: Annotated[int | None, typer.Option(metavar="N", help="The same as a number of files.")] = None,
        stage: Annotated[
            bool,
            typer.Option(
                "--stage", help="Load what is no files in chunks: first write it to files beside --checkpoint."
            ),
        ] = False,
        stage_rows: Annotated[
            int, typer.Option(min=1, metavar="N", help="Rows of a file of --stage, at most.")
        ] = staged_rows_per_file_default,
        checkpoint: Annotated[
            str, typer.Option(metavar="FOLDER", help="Folder in which jobs remember what is written.")
        ] = "",
        controller: ControllerOption = CONTROLLER_DEFAULT,
        master: MasterOption = "",
        as_json: JsonAtEndOption = False,
    ) -> None:
        """Load files, or what any Spark format reads, into a stream."""
        with self._reported(job_id):
            checked_job_id(job_id)
            parse_stream(target)
            if not 1 <= segments <= segments_per_stream_max:
                raise InvalidArgument(f"--segments {segments} must be at least 1 and at most {segments_per_stream_max}")
            form, options = reader_of(source_format or found_format(source), parse_options(option or []))
            job = LoadJob(source, form, target, options, schema, event, key, stage)
            if stage and job.is_of_files:
                raise InvalidArgument(
                    f"--stage is for what is no files: {job.source_format} is loaded in chunks without"
                )
            chunks = replace(chunks_of(chunk_bytes, chunk_files), rows=stage_rows)
            settings = LoadSettings(segments, checkpoint, chunks)
            _show(self._runner.load(JobRun(job_id, controller, master), job, settings), as_json)

    def export(
        self,
        source: Annotated[str, typer.Argument(metavar="SCOPE/STREAM", help="The stream.")],
        target: Annotated[str, typer.Argument(metavar="FOLDER", help="Several jobs may write to one.")],
        job_id: JobIdOption,
        start: Annotated[
            str,
            typer.Option(metavar="earliest|TIME|CUT", help=START_HELP),
        ] = "earliest",
        end: Annotated[
            str, typer.Option(metavar="latest|TIME|CUT", help="Where to end; fixed at the first run.")
        ] = "latest",
        select: Annotated[
            list[str] | None, typer.Option(metavar="EXPR", help="SQL, a column each (repeat); default: all columns.")
        ] = None,
        partition_by: Annotated[
            list[str] | None, typer.Option(metavar="COLUMN", help="Put files into folders by its values (repeat).")
        ] = None,
        chunk_bytes: Annotated[
            str,
            typer.Option(
                metavar="SIZE",
                help="Bytes of the stream for one Spark job, at the first run (512MiB a core, 1GiB at least).",
            ),
        ] = "",
        controller: ControllerOption = CONTROLLER_DEFAULT,
        master: MasterOption = "",
        as_json: JsonAtEndOption = False,
    ) -> None:
        """Export a range of a stream into Parquet files."""
        advice = f"take another --job-id, and {head_advice('--start', source)}"
        with self._reported(job_id, lambda text: with_advice(text, advice)):
            checked_job_id(job_id)
            parse_stream(source)
            job = ExportJob(source, target, start, end, tuple(select or ()), tuple(partition_by or ()))
            size_bytes = parse_bytes(chunk_bytes, "--chunk-bytes") if chunk_bytes else None
            _show(self._runner.export(JobRun(job_id, controller, master), job, size_bytes), as_json)

    @contextmanager
    def _reported(self, job_id: str, told: Callable[[str], str] = str) -> Iterator[None]:
        """Turns an error into its sentence on stderr, as ``told`` makes it, and the exit status."""
        try:
            yield
        except KeyboardInterrupt:
            say(f"{self._program}: stopped; run it again with --job-id {job_id} to go on")
            raise typer.Exit(interrupted_status) from None
        except PravegaError as error:
            say(f"{self._program}: {told(str(error))}")
            raise typer.Exit(1) from error
        except Exception as error:
            # Spark's own errors, with any error of ours inside.
            say(f"{self._program}: job '{job_id}' failed: {told(sentence_of(error))}")
            raise typer.Exit(1) from error


def chunks_of(chunk_bytes: str, chunk_files: int | None) -> Chunks:
    """Checks the two options that size a commit; ``InvalidArgument`` names what cannot work."""
    if chunk_bytes and chunk_files is not None:
        raise InvalidArgument(f"--chunk-bytes {chunk_bytes} and --chunk-files {chunk_files} exclude each other")
    if chunk_files is not None and chunk_files < 1:
        raise InvalidArgument(f"--chunk-files {chunk_files} must be at least 1")
    size_bytes = parse_bytes(chunk_bytes, "--chunk-bytes") if chunk_bytes else chunk_bytes_default
    return Chunks(size_bytes, chunk_files)


def _show(summary: Summary, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    names: Sequence[str] = ("rows", "commits", "files", "bytes")
    counts = ", ".join(counted(summary[name], name.removesuffix("s")) for name in names if name in summary)
    print(f"job {summary['job_id']} into {summary['into']}: {counts}{_before_text(summary)}")


def _before_text(summary: Summary) -> str:
    """Says what former runs did, so that a run without anything new is not taken for one that failed."""
    if summary.get("done_before"):
        return " (done before, nothing was written now)"
    rows, is_exact = summary.get("rows_before", 0), summary.get("is_before_exact", True)
    if not rows and is_exact:
        return ""
    done = f"{counted(rows, 'row')} done before"
    done = done if is_exact else f"at least {done}, some runs were killed"
    return f" ({done})" if summary["rows"] else f" (nothing new, {done})"
