"""Divides the range of an export into chunks, each of which one Spark job reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pravega_common.names import scoped_name
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.source.range_planner import spans_of_batch
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.spark_version import ADMISSION_CONTROL, has

partition_bytes_max: Final = 128 * 1024 * 1024
"""Bytes that one task of an export reads at most, where the store knows event boundaries to split at."""
tasks_per_core: Final = 4
"""Tasks for each core in a chunk, so that the last ones of a chunk leave few cores idle."""
chunk_bytes_min: Final = 1024**3
"""The smallest chunk by default: to start a Spark job takes a second or two."""
chunks_max: Final = 1_000
"""Chunks of one job; larger ranges have larger chunks. The plan has a stream cut for each."""


@dataclass(frozen=True, slots=True)
class ExportChunk:
    """A part of an export's range: ``size_bytes`` of the stream, from ``start`` to ``end``, stream cuts as text."""

    start: str
    end: str
    size_bytes: int


def chunk_bytes_for(cores: int) -> int:
    """The bytes of a chunk by default: enough for all cores of a cluster."""
    return max(chunk_bytes_min, cores * tasks_per_core * partition_bytes_max)


def divided(source: Mapping[str, str], limits: Mapping[str, str], chunk_bytes: int) -> list[dict[str, Any]]:
    """The ends and sizes of the chunks of a range, as the plan of a job keeps them; asks the store.

    ``source`` and ``limits`` are options of a read, ``limits`` its two stream cuts. A chunk may have half as much again
    as ``chunk_bytes``. Spark 4.0 and 4.1 cannot divide a range: all of it is one chunk.
    """
    scope, stream = source["scope"], source["stream"]
    start, end = (StreamCut.from_text(limits[name]) for name in ("start_stream_cut", "end_stream_cut"))
    # The options of how a batch is split into tasks are not those of a stream.
    where = {name: source[name] for name in ("controller", "ca_file", "scope", "stream") if name in source}
    gateway = worker_gateway(ReadOptions.parse(where, Use.BATCH_READ).controller)
    positions = StreamPositions(gateway, scope, stream, fail_on_data_loss=True)
    left = total = sum(span.length for span in positions.spans(start.offsets, end.offsets))
    inside = set(gateway.segments_between(scope, stream, start.offsets, end.offsets))
    chunks: list[dict[str, Any]] = []
    chunk_bytes = max(chunk_bytes, -(-total // chunks_max))
    if total > chunk_bytes and has(ADMISSION_CONTROL):
        gathered = 0
        for offset, size in _steps({**where, **limits, "approx_bytes_per_trigger": str(chunk_bytes)}):
            gathered += size
            cut = StreamCut(scope, stream, offset.position[scoped_name(scope, stream)])
            # A position is moved behind sealed segments, also where the end of the range is still in them.
            if 2 * gathered >= chunk_bytes and gathered < left and inside >= cut.offsets.keys():
                chunks.append({"end": cut.as_text(), "bytes": gathered})
                left -= gathered
                gathered = 0
    return [*chunks, {"end": limits["end_stream_cut"], "bytes": left}]


def _steps(given: Mapping[str, str]) -> list[tuple[SourceOffset, int]]:
    """The micro-batches that a streaming read of the range would have, with their bytes."""
    from pravega_spark.source.stream_reader import StreamReader

    reader = StreamReader(ReadOptions.parse(given, Use.STREAM_READ), pa.schema([]))
    reader.prepareForTriggerAvailableNow()
    limit, at = reader.getDefaultReadLimit(), reader.initialOffset()
    steps = []
    while (end := reader.latestOffset(at, limit)) != at:
        offset, at = SourceOffset.from_json(end), end
        spans = [] if offset.start is None else spans_of_batch(offset.start, offset)
        steps.append((offset, sum(span.length for span in spans)))
    return steps


def chunks_of_plan(plan: Mapping[str, Any]) -> list[ExportChunk]:
    """The chunks that a plan recorded; all in one where an older version did."""
    limits = plan["range"]
    recorded = plan.get("chunks") or [{"end": limits["end_stream_cut"], "bytes": 0}]
    starts = [limits["start_stream_cut"], *(item["end"] for item in recorded)]
    return [ExportChunk(start, item["end"], item["bytes"]) for start, item in zip(starts, recorded, strict=False)]
