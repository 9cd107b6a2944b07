"""Plans the micro-batches of a streaming read on Spark 4.0 and 4.1, whose sources cannot limit a batch.

Such a Spark does not tell a source where a batch starts before it asks for the end, so a batch is all there is. It may
hold a segment and its successors: only ``order=none`` is served (docs/spark-source-and-sink.md A.11).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pravega_common.errors import NotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import scoped_name, split_scoped_name
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.limits import UNBOUNDED
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.data_loss import gone
from pravega_spark.source.idle_wait import IdleWait
from pravega_spark.source.native_plan import may_be_native
from pravega_spark.source.offsets import OffsetsByStream, SourceOffset
from pravega_spark.source.partition_reader import SpanPartition, read_spans
from pravega_spark.source.range_planner import Span, packs_of_batch, split
from pravega_spark.source.read_edges import first_cut, given_start, joining_cut, moves_with_head, starts_at_latest
from pravega_spark.source.read_streams import ReadStreams
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.source.subscription import Subscription
from pravega_spark.spark_errors import in_sentences
from pravega_spark.spark_version import ADMISSION_CONTROL, refuse
from pravega_spark.worker_socket import SentToTask

_ABSENT: Final = (
    "approx_bytes_per_trigger",
    "max_events_per_trigger",
    "min_events_per_trigger",
    "end_stream_cut",
    "end_time",
)

_log = logging.getLogger(__name__)


@in_sentences
class PlainStreamReader(SentToTask, DataSourceStreamReader):
    """The reader of a query without limits; the one that is pickled to executors only reads spans."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises for options that this Spark cannot honour."""
        for name in _ABSENT:
            if getattr(options, name) not in (None, UNBOUNDED):
                raise refuse(f"option '{name}' of a streaming read", ADMISSION_CONTROL, "leave it out")
        if options.order != "none":
            what = "a streaming read that keeps the order of a key over a scaling"
            raise refuse(what, ADMISSION_CONTROL, "if the order over a scaling does not matter, set order=none")
        self._options = options
        self._schema = schema
        self._monotonic_s = monotonic_s
        self._idle = IdleWait(options.controller, monotonic_s, sleep)
        self._subscription = Subscription(options)
        self._names = ReadStreams(options, monotonic_s)
        self._initial: OffsetsByStream | None = None
        self._left_out: set[str] = set()
        """Streams that the pattern found, and that were not there when the query was to begin in them."""
        self._last: SourceOffset | None = None
        self._is_begun = False
        """Whether the query has a batch, which may be of the run before."""
        self._seen: SourceOffset | None = None
        """The end of the last batch of the run before."""

    def initialOffset(self) -> dict[str, Any]:
        """The start of a query; Spark does not store it, so the first batch's end carries it.

        Spark may ask for it only when it has that end, before which ``latest`` must not come.
        """
        first = self._seen or self._last
        if self._initial is None and first is not None and starts_at_latest(self._options):
            self._initial = first.start or first.first or first.position
        if self._initial is None:
            gateway = provisioned_gateway(self._options)
            names = self._names.names()
            given = given_start(self._options) if names else None  # A query that waits for its first stream asks none.
            self._initial = self._of_each(
                names, lambda name: first_cut(self._options, given, self._positions(gateway, name), is_streaming=True)
            )
            self._left_out = set(names) - set(self._initial)
        # Its own start marks it: no other offset that a batch with rows may begin at has that.
        return SourceOffset(self._initial, self._initial or None).to_json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the form of Spark before 4.2
        """The end of the streams: the same text while nothing was added."""
        gateway = provisioned_gateway(self._options)
        if self._last is None:  # A first batch has the streams of the initial offset, which does not move.
            if not self._is_begun and moves_with_head(self._options):
                self.initialOffset()  # Spark asks for it later, and a run that repeats the batch when the head moved.
            return self._moved_to(self._joining(gateway), self._tails(gateway)).to_json()
        last = self._last.to_json()
        self._idle.wait(last, self._last.position)
        began_s = self._monotonic_s()
        self._names.look_again()
        joining, position = self._joining(gateway), self._tails(gateway)
        is_found = position != self._last.position
        self._idle.looked(last, began_s, is_found=is_found)
        return self._moved_to(joining, position).to_json() if is_found else last

    def _moved_to(self, joining: OffsetsByStream, position: OffsetsByStream) -> SourceOffset:
        # A run that repeats the first batch has an initial offset of its own, where none of its batches begins.
        initial = {} if self._is_begun or self._initial is None else self._initial
        self._last = SourceOffset(position, first=_of_streams({**initial, **joining}, position) or None)
        return self._last

    def _joining(self, gateway: StreamGateway) -> OffsetsByStream:
        """The starts of streams that the end before does not have; asked before their ends, which do not lie before."""
        before = self._last or self._seen
        new = [] if before is None else [name for name in self._names.names() if name not in before.position]
        return self._of_each(new, lambda name: joining_cut(self._options, self._positions(gateway, name)))

    def _tails(self, gateway: StreamGateway) -> OffsetsByStream:
        """The ends of the streams; a first batch has none in which the query does not begin."""
        names = [name for name in self._names.names() if self._is_begun or name not in self._left_out]
        return self._of_each(names, lambda name: gateway.tail_cut(*split_scoped_name(name)))

    def _of_each(self, names: Iterable[str], find: Callable[[str], SegmentOffsets]) -> OffsetsByStream:
        """Without a stream that a pattern found and that is not there: it is being made, or is deleted."""
        found = {}
        for name in names:
            try:
                found[name] = find(name)
            except NotFound:
                if self._options.stream_pattern is None:
                    raise
        return found

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The partitions of the batch between two offsets."""
        self._is_begun = True
        if start == end:  # Spark says what it has seen last, before it repeats that batch: nothing of it is done yet.
            self._seen = SourceOffset.from_json(end)
            return []
        first, last = SourceOffset.from_json(start), SourceOffset.from_json(end)
        begin = self._begin(first, last)
        gateway = worker_gateway(self._options.controller)
        positions = {name: self._positions(gateway, name) for name in last.position}
        self._names.check_left(begin, last.position)
        batches = self._batches(positions, begin, last.position)
        self._subscription.hold({name: start for name, (start, _) in batches.items()})
        spans = [span for _, found in batches.values() for span in found]

        def locate(span: Span, offset: int) -> int:
            return positions[scoped_name(span.scope, span.stream)].events.locate(span.segment_id, offset, span.end)

        pieces = split(spans, self._options.min_partitions, self._options.max_partition_bytes, locate)
        packs = packs_of_batch(
            pieces, self._options.min_partitions, self._options.max_partition_bytes, self._options.packed_bytes
        )
        is_native = may_be_native(self._options, self._schema, gateway)
        return [SpanPartition.planned(gateway, *spans, is_native=is_native) for spans in packs]

    def _batches(
        self, positions: Mapping[str, StreamPositions], begin: OffsetsByStream, end: OffsetsByStream
    ) -> dict[str, tuple[SegmentOffsets, list[Span]]]:
        """Return where the batch begins in each stream, and its spans there.

        A stream of a pattern may be deleted since its end was logged: data that is lost, as where a span is read.
        """
        found = {}
        for name, one in positions.items():
            try:
                found[name] = one.micro_batch(begin.get(name) or joining_cut(self._options, one), end[name])
            except NotFound as error:
                if self._options.stream_pattern is None:
                    raise
                if self._options.fail_on_data_loss:
                    raise gone(one.scope, one.stream) from error
                _log.warning("stream %s is deleted: the rows that a batch had of it are not read", name)
        return found

    def _begin(self, first: SourceOffset, last: SourceOffset) -> OffsetsByStream:
        """Return where a batch begins, which is where the one before ended, or where its end says of new streams.

        The first one begins where its end says, as ``first`` may be a later ``latest`` or head, and may have streams
        that came since. An end that says where its own batch begins was written by the reader for Spark 4.2, which also
        says where new streams begin, or by an earlier version after a restart, when it may be wrong.
        """
        is_first = first.position == self._initial == first.start
        if last.start is not None:
            return last.start if is_first else {**last.start, **first.position}
        if is_first:
            return _of_streams(last.first or first.position, last.position)
        return {**(last.first or {}), **first.position}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SpanPartition):
            yield from read_spans(
                partition,
                self._schema,
                self._options.controller,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Positions live in the checkpoint; a subscriber releases what they passed."""
        self._subscription.release(SourceOffset.from_json(end).position)

    def stop(self) -> None:
        """Does nothing: Spark ends the process without asking (docs/spark-source-and-sink.md B.2)."""

    def _positions(self, gateway: StreamGateway, name: str) -> StreamPositions:
        return StreamPositions(gateway, *split_scoped_name(name), fail_on_data_loss=self._options.fail_on_data_loss)


def _of_streams(position: OffsetsByStream, names: Collection[str]) -> OffsetsByStream:
    return {name: cut for name, cut in position.items() if name in names}
