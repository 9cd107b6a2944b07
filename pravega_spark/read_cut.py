"""Tells where a batch read of streams ended: ``pravega_spark.cut_of(df)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pravega_common.errors import InvalidArgument, UnsupportedOperation
from pravega_common.names import split_scoped_name
from pravega_common.stream_cut import StreamCut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pravega_common.model.segments import SegmentOffsets
    from pravega_spark.source.offsets import OffsetsByStream


def cut_of(frame: DataFrame) -> str:
    """The end of a batch read as option ``start_stream_cut`` takes it: stream cuts as text, separated by commas.

    A read up to ``latest`` chooses its end when it is first planned, and keeps it: for the frame of ``load()`` and all
    that is made of it. So a stream that goes on exactly where a batch ended misses nothing and repeats nothing::

        history = spark.read.format("pravega").options(**where).load()
        backfill(history)
        stream = spark.readStream.format("pravega").options(**where, start_stream_cut=pravega_spark.cut_of(history))

    Of a frame that nobody has used yet the end is chosen now. Where Spark pushes filters to Python
    (``spark.sql.python.filterPushdown.enabled``) each use with a filter chooses its own: give ``end_stream_cut`` there.
    ``InvalidArgument`` where the frame reads no stream, or reads one up to two different ends. ``UnsupportedOperation``
    on Spark Connect, which shows no plan: there read ``metadata=StreamInfo`` first, and give its tail to both reads.
    """
    if not hasattr(frame, "_jdf"):
        raise UnsupportedOperation(
            "Spark Connect does not tell what a frame has read: load with option metadata=StreamInfo first, and give "
            "its tail_stream_cut to the batch read as end_stream_cut and to the stream as start_stream_cut"
        )
    cuts: dict[str, SegmentOffsets] = {}
    for found in _ends_of(frame):
        for name, cut in found.items():
            if cuts.setdefault(name, cut) != cut:
                raise InvalidArgument(f"this frame reads {name} more than once, up to different ends")
    if not cuts:
        raise InvalidArgument("this frame reads no stream of format pravega as a batch")
    return ",".join(StreamCut(*split_scoped_name(name), cut).as_text() for name, cut in sorted(cuts.items()))


def _ends_of(frame: Any) -> Iterator[OffsetsByStream]:
    """The ends that each scan of a plan noted with its partitions; PySpark gives no public way to them."""
    from pyspark.cloudpickle import loads

    from pravega_spark.source.partition_reader import SpanPartition

    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
            continue
        scan = leaf.scan()
        if scan.getClass().getSimpleName() not in ("PythonScan", "PravegaScan"):  # The second one is of the jar.
            continue
        for planned in scan.toBatch().planInputPartitions():
            if planned.getClass().getSimpleName() == "NativePartition":
                planned = planned.python()
            partition = loads(bytes(planned.pickedPartition()))
            if isinstance(partition, SpanPartition) and partition.ends:
                yield partition.ends
