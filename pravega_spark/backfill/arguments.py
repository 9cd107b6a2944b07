"""The arguments of ``pravega-spark backfill`` and of ``spark-submit scripts/backfill.py``, the same for both.

Not Typer: a Spark cluster has the package without what only the command line needs.
"""

from __future__ import annotations

import argparse
import os

from pravega_common.names import segments_per_stream_max
from pravega_spark.backfill.definition import (
    FILE_FORMATS,
    ExportJob,
    LoadJob,
    checked_job_id,
    checked_stream,
    chunk_bytes_default,
    format_of,
    parse_options,
)
from pravega_spark.backfill.load import Chunks
from pravega_spark.commands.quantities import parse_bytes

CONTROLLER_DEFAULT = "tcp://localhost:9090"


def parser(program: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=program, description="Files into a stream, and a stream into files: exactly once by job id."
    )
    kinds = made.add_subparsers(dest="kind", required=True, metavar="load|export")
    load = kinds.add_parser("load", help="files, or what any Spark format reads, into a stream")
    load.add_argument("source", metavar="PATH", help="folder, file or pattern; - for a format that has no path")
    load.add_argument("target", metavar="SCOPE/STREAM", help="created if it is missing")
    _common(load)
    load.add_argument("--format", default="", help=f"{', '.join(FILE_FORMATS)} or any other; default: by the ending")
    load.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="for Spark's reader (repeat)")
    load.add_argument(
        "--schema", default="", metavar="DDL", help="of the source; default: read from it at the first run"
    )
    load.add_argument(
        "--event", default="", metavar="EXPR", help="SQL; default: JSON of all columns; of text its lines"
    )
    load.add_argument("--key", default="", metavar="EXPR", help="SQL for the routing key; default: none")
    load.add_argument("--segments", type=int, default=1, metavar="N", help="of a stream that is created")
    load.add_argument("--chunk-bytes", default="", metavar="SIZE", help="files for one commit, at least one (256MiB)")
    load.add_argument("--chunk-files", type=int, metavar="N", help="the same as a number of files")
    load.add_argument("--checkpoint", default="", metavar="FOLDER", help="where jobs remember what is written")
    export = kinds.add_parser("export", help="a range of a stream into Parquet files")
    export.add_argument("source", metavar="SCOPE/STREAM")
    export.add_argument("target", metavar="FOLDER", help="several jobs may write to one")
    _common(export)
    export.add_argument("--start", default="earliest", metavar="earliest|CUT", help="where to begin")
    export.add_argument("--end", default="latest", metavar="latest|CUT", help="where to end; fixed at the first run")
    export.add_argument("--select", action="append", default=[], metavar="EXPR", help="SQL, a column each (repeat)")
    return made


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("--job-id", required=True, metavar="ID", help="run it again with the same id to go on")
    made.add_argument(
        "--controller", default=os.environ.get("PRAVEGA_CONTROLLER", CONTROLLER_DEFAULT), help="tcp://host:port"
    )
    made.add_argument("--master", default="", help="Spark's; default: spark-submit's, else local[*]")
    made.add_argument("--json", action="store_true", help="print a JSON document at the end")


def load_job(given: argparse.Namespace) -> LoadJob:
    """``InvalidArgument`` and ``ConfigurationError`` name what cannot work."""
    checked_job_id(given.job_id)
    checked_stream(given.target)
    if not 1 <= given.segments <= segments_per_stream_max:
        _refuse(f"--segments {given.segments} must be at least 1 and at most {segments_per_stream_max}")
    return LoadJob(
        given.source,
        given.format or format_of(given.source),
        given.target,
        parse_options(given.option),
        given.schema,
        given.event,
        given.key,
    )


def chunks_of(given: argparse.Namespace) -> Chunks:
    if given.chunk_bytes and given.chunk_files is not None:
        _refuse(f"--chunk-bytes {given.chunk_bytes} and --chunk-files {given.chunk_files} exclude each other")
    if given.chunk_files is not None and given.chunk_files < 1:
        _refuse(f"--chunk-files {given.chunk_files} must be at least 1")
    size_bytes = parse_bytes(given.chunk_bytes, "--chunk-bytes") if given.chunk_bytes else chunk_bytes_default
    return Chunks(size_bytes, given.chunk_files)


def export_job(given: argparse.Namespace) -> ExportJob:
    """``InvalidArgument`` names what cannot work."""
    checked_job_id(given.job_id)
    checked_stream(given.source)
    return ExportJob(given.source, given.target, given.start, given.end, tuple(given.select))


def _refuse(text: str) -> None:
    from pravega_common.errors import InvalidArgument

    raise InvalidArgument(text)
