"""Plans the micro-batches of a streaming read: their offsets and partitions."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pravega_common.errors import InvalidArgument, NotFound, SegmentNotFound, SegmentTruncated, StreamNotFound
from pravega_common.model.segments import SegmentInfo, SegmentOffsets
from pravega_common.names import scoped_name, segment_epoch, split_scoped_name
from pravega_common.runtime.system_time import system_time_ms
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.limits import UNBOUNDED
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.cluster_clock import ClusterClock
from pravega_spark.source.idle_wait import IdleWait
from pravega_spark.source.infos_together import infos_together
from pravega_spark.source.known_offsets import KnownOffsets
from pravega_spark.source.native_plan import may_be_native
from pravega_spark.source.offsets import OffsetsByStream, SourceOffset
from pravega_spark.source.partition_reader import SpanPartition, read_spans
from pravega_spark.source.quiet_look import QuietLook
from pravega_spark.source.range_planner import Span, lag_bytes, packs_of_batch, spans_of_batch, split
from pravega_spark.source.read_bound import ReadBound, ended_at
from pravega_spark.source.read_edges import first_cut, given_start, joining_cut, last_cut, starts_at_latest
from pravega_spark.source.read_streams import ReadStreams
from pravega_spark.source.segment_events import SegmentEvents, events_max
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.source.subscription import Subscription
from pravega_spark.source.told_cuts import with_cuts
from pravega_spark.source.trigger_limits import Ends, TriggerLimits
from pravega_spark.spark_errors import in_sentences
from pravega_spark.worker_socket import SentToTask

_Infos = dict[str, dict[int, SegmentInfo]]

index_delay_max_ms: Final = 5_000
"""How long after an event its time may be unknown to the index of its store, and how far two clocks may differ."""

scalings_per_batch_max: Final = 1_000
"""Over how many scalings one behind the other a batch with ``order=none`` reads; the next one goes on from there."""

plans_max: Final = 3
"""How often a batch is planned at most, when a segment or its stream is deleted or truncated while it is planned."""

creation_max_s: Final = 60.0
"""How long a stream that a pattern found may have no segments since it is being made."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A batch has these ends: where the next one begins, and how far this one reads the segments that it ends."""

    position: OffsetsByStream
    ended: OffsetsByStream
    ends: OffsetsByStream
    """The end in the segments that it comes to last, before those that are read out give way to their successors."""
    infos: _Infos
    """What is known of these."""


@in_sentences
class StreamReader(SentToTask, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query.

    The one in the source's own process keeps state; the one that is pickled to executors only reads spans.

    With ``order=key`` a batch never has a segment and one of its successors: where a segment was sealed the batch ends,
    and the next one goes on with the successors. So the rows of a routing key come in their order, batch by batch. With
    ``order=none`` a batch goes on with the successors itself, as far as its limits allow.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._monotonic_s = monotonic_s
        self._clock = ClusterClock(options.controller, system_time_ms)
        self._idle = IdleWait(options.controller, monotonic_s, sleep)
        self._schema = schema
        self._subscription = Subscription(options)
        self._names = ReadStreams(options, monotonic_s)
        self._streams: dict[str, StreamPositions] = {}
        self._is_open = False
        self._joined: dict[str, SegmentOffsets] = {}
        """Where streams begin that the checkpoint does not have: found once, so that nothing is lost unseen."""
        self._unmade: dict[str, float] = {}
        """Since when streams are known that have no segments yet, by a monotonic clock in seconds."""
        self._initial: dict[str, Any] | None = None
        self._end: dict[str, ReadBound] = {}
        self._target: dict[str, ReadBound] | None = None
        self._reported: dict[str, Any] | None = None
        self._is_end_settled = False
        self._has_looked = False
        """Whether this process has looked for data: before that, a batch is one of the run before."""
        self._limits = TriggerLimits(options)
        self._quiet = QuietLook()
        self._offsets = KnownOffsets()

    # Where to start

    def initialOffset(self) -> dict[str, Any]:
        """The start of a query, the same in one process: Spark asks twice, and ``latest`` must not move between."""
        if self._initial is None:
            streams = self._opened()
            given = given_start(self._options) if streams else None  # One that waits for its first stream asks none.
            cuts = self._of_each(
                streams, lambda one: self._start(one, lambda: first_cut(self._options, given, one, is_streaming=True))
            )
            self._initial = SourceOffset(cuts).to_json()
        return self._initial

    def _opened(self) -> dict[str, StreamPositions]:
        """The streams that are read, by ``scope/stream``; connects at the first call."""
        if not self._is_open:
            provisioned_gateway(self._options)
            self._take_up(self._names.names())
            self._is_open = True
        return self._streams

    def _take_up(self, names: Collection[str]) -> None:
        """Read these streams from now on, and no others."""
        for name in set(self._streams) - set(names):
            for known in (self._streams, self._joined, self._end, self._unmade):
                known.pop(name, None)
            self._subscription.forget(name)
        new = {name: self._positions(*split_scoped_name(name)) for name in names if name not in self._streams}
        self._streams.update(new)
        limit = self._options.end_stream_cut
        if limit is not None and limit != UNBOUNDED:
            unbound = [name for name in self._streams if name not in self._end]
            given = with_cuts(limit) if unbound else limit
            self._end.update(self._of_each(unbound, lambda one: one.bound(last_cut(self._options, given, one))))

    def _of_each(self, names: Iterable[str], find: Callable[[StreamPositions], T]) -> dict[str, T]:
        """The answer of each stream; one that a pattern found and that is not there is left out, and not read.

        It is being made, or is deleted: the next look for streams says so.
        """
        found: dict[str, T] = {}
        for name in list(names):
            try:
                found[name] = find(self._streams[name])
            except NotFound:
                if self._options.stream_pattern is None:
                    raise
                del self._streams[name]
        return found

    def _start(self, one: StreamPositions, find: Callable[[], SegmentOffsets]) -> SegmentOffsets:
        if self._options.start_time is not None:
            self._check_head(one)
        return self._made(one, find())

    def _bound_at_time(self, one: StreamPositions, time_ms: int) -> ReadBound:
        self._check_head(one)
        return one.bound_at_time(time_ms)

    def _check_head(self, one: StreamPositions) -> None:
        """Times are looked for from the head on: ``StreamNotFound`` as of ``_made``."""
        if self._options.stream_pattern is not None:
            self._made(one, one.head())

    def _made(self, one: StreamPositions, start: SegmentOffsets) -> SegmentOffsets:
        """The start of a stream; ``StreamNotFound`` for one that a pattern found and that has no segments yet.

        Controllers list a stream, and tell its head, before the stores have its segments, which would look as if they
        were lost. Those of a stream that lacks them for ``creation_max_s`` are.
        """
        is_new = not any(start.values()) and not any(map(segment_epoch, start))
        if self._options.stream_pattern is None or not is_new:
            return start
        name, now_s = scoped_name(one.scope, one.stream), self._monotonic_s()
        if not one.deleted(start) or one.head() != start:  # What is truncated is lost to a start before it.
            self._unmade.pop(name, None)
        elif now_s - self._unmade.setdefault(name, now_s) < creation_max_s:
            raise StreamNotFound(f"stream {name} has no segments yet")
        return start

    def _look_for_streams(self) -> None:
        """Take up streams that a pattern finds new; none where the read has an end that is there already."""
        has_end = self._options.end_stream_cut not in (None, UNBOUNDED) or self._is_end_settled
        if self._options.stream_pattern is None or self._target is not None or has_end:
            return
        self._opened()
        self._names.look_again()
        self._take_up(self._names.names())

    def _positions(self, scope: str, stream: str) -> StreamPositions:
        fails = self._options.fail_on_data_loss
        return StreamPositions(worker_gateway(self._options.controller), scope, stream, fail_on_data_loss=fails)

    # How far to go

    def prepareForTriggerAvailableNow(self) -> None:
        """First the start, then the target: so the target is never before it.

        A start at a stream cut does not move; and when there is a checkpoint, it need not be of all streams any more.
        Nor does one at a time, and to find it may take a walk over all scalings, which a restart would repeat.
        """
        limit = self._options.start_stream_cut
        if self._options.start_time is None and (limit is None or limit.keyword is not None):
            self.initialOffset()
        self._target = self._of_each(self._opened(), lambda one: one.bound(one.tail()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes only one, and none of two kinds; ``latestOffset`` applies all that are configured."""
        if self._options.approx_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.approx_bytes_per_trigger)
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.min_events_per_trigger is not None:
            return ReadMaxRows(events_max)  # Trigger.Once has no limit, and waits for no event.
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself when there is nothing to read, but for a first batch.

        That one runs without rows, and its end says where it began. A position that moved over a scaling is the end of
        a batch without rows, too: else the checkpoint stayed at a segment that is read to its end, and would miss it
        when that is truncated.
        """
        self._has_looked = True
        if self._target is not None:
            return self._looked_for(start, limit)
        self._idle.wait(start, None if self._end else self._quiet.tails)
        began_s = self._monotonic_s()
        end = self._looked_for(start, limit)
        self._idle.looked(start, began_s, is_found=end != start)
        return end

    def _looked_for(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._look_for_streams()
        self._look_at_the_clock()
        for _ in range(plans_max - 1):
            try:
                return self._planned(start, limit)
            except (SegmentNotFound, SegmentTruncated, NotFound):
                _log.info("a segment was deleted or truncated while a batch was planned: it is planned again")
        return self._planned(start, limit)

    def _planned(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        for positions in self._opened().values():
            positions.events.forget()
        begin = self._begin(self._offsets.parsed(start).position)
        self._subscription.hold(begin)
        moved, infos = self._advanced(begin, {})
        if not self._end and self._target is None and self._quiet.is_repeated(moved, infos):
            return self._unmoved(start, begin)
        is_limited = not isinstance(limit, ReadAllAvailable)
        holds_back = is_limited and self._target is None and self._holds_back(moved, infos)
        if holds_back or any(_is_begun_anew(begin[name], cut) for name, cut in moved.items()):
            taken = _Taken(moved, {}, moved, infos)
        else:
            taken = self._taken(moved, infos, is_limited=is_limited)
        available = self._available(taken.ends, taken.infos)
        self._report(taken.ends, available, taken.infos)
        self._quiet.looked(begin, available, infos)
        if taken.ends == moved == begin:
            return self._unmoved(start, begin)
        return SourceOffset(taken.position, begin, taken.ended).to_json()

    def _unmoved(self, start: dict[str, Any], begin: OffsetsByStream) -> dict[str, Any]:
        """Return ``start``, so that there is no batch; of a first one, which Spark runs all the same, its end.

        It says where it began, as any end does: Spark may have to repeat the batch from a later ``latest``.
        """
        if start != self._initial or not begin:  # A pattern that matches no stream yet begins nowhere.
            return start
        return SourceOffset(begin, begin).to_json()

    def _taken(self, position: OffsetsByStream, infos: _Infos, *, is_limited: bool) -> _Taken:
        """Plan the batch that begins at ``position``; over scalings only where no order is to be kept."""
        ended: dict[str, dict[int, int]] = {}
        self._limits.begin(is_limited=is_limited)
        taken = _Taken(position, ended, position, infos)
        for _ in range(1 if self._options.order == "key" else scalings_per_batch_max):
            ends = self._ends(position, infos)
            if ends == position:
                break
            following, known = self._advanced(ends, infos)
            taken = _Taken(following, ended, ends, infos)
            for name, cut in ends.items():
                if left := {item: offset for item, offset in cut.items() if item not in following[name]}:
                    ended[name] = {**ended.get(name, {}), **left}
            if self._limits.is_spent:
                break
            position, infos = following, known
        return taken

    def _look_at_the_clock(self) -> None:
        """Bind the source to ``end_time`` once that has come: what was written before is before it.

        For a moment after it the index of the store may not know the last events; then the bound is looked up again.
        The last time it is of all streams that a pattern finds then: one may have come since the last look for some.
        """
        time_ms = self._options.end_time
        if time_ms is None or self._is_end_settled:
            return
        streams = self._opened()
        now_ms = self._clock.now_ms()
        if now_ms >= time_ms + index_delay_max_ms:
            now_ms = self._clock.asked_ms()  # The driver's clock may have been set since it was asked.
        if now_ms < time_ms:
            return
        settles = now_ms >= time_ms + index_delay_max_ms
        if settles and self._target is None:
            settles = self._names.look_again(at_once=True)
            self._take_up(self._names.names())
        self._end.update(self._of_each(streams, lambda one: self._bound_at_time(one, time_ms)))
        self._is_end_settled = settles

    def _begin(self, start: OffsetsByStream) -> OffsetsByStream:
        """``start`` without streams that are no longer read, and with those that came."""
        self._names.check_left(start, self._opened())
        return self._joining(start)

    def _joining(self, start: OffsetsByStream) -> OffsetsByStream:
        new = [name for name in self._opened() if name not in start and name not in self._joined]
        self._joined.update(self._of_each(new, lambda one: self._start(one, lambda: joining_cut(self._options, one))))
        return {name: start[name] if name in start else self._joined[name] for name in self._opened()}

    def _advanced(self, position: OffsetsByStream, known: _Infos) -> tuple[OffsetsByStream, _Infos]:
        moved: dict[str, SegmentOffsets] = {}
        infos: _Infos = {}
        left = {}
        for name, cut in position.items():
            if self._is_at_end(name, cut):  # What becomes of the rest is not ours.
                moved[name], infos[name] = cut, ended_at(cut)
            else:
                left[name] = cut
        asked = infos_together(worker_gateway(self._options.controller), left, known)
        for name, cut in left.items():
            moved[name], infos[name] = self._opened()[name].advanced(cut, asked.get(name))
        return {name: moved[name] for name in position}, {name: infos[name] for name in position}

    def _is_at_end(self, name: str, cut: SegmentOffsets) -> bool:
        """Whether a stream is read up to the end of the read, and was not lost before it.

        A segment that is deleted looks to the end as one behind it.
        """
        end = self._end.get(name)
        if end is None or not end.is_reached(cut):
            return False
        gone = self._opened()[name].deleted(end.unknown(cut))
        if not gone:
            return True
        try:
            return not end.is_behind(gone, self._opened()[name].in_place_of(gone, cut))
        except NotFound:
            return True  # The stream is deleted.

    def _end_of(self, name: str, segment_id: int, offset: int, infos: _Infos) -> int:
        length = max(offset, infos[name][segment_id].length)
        for bounds in (self._end, self._target or {}):
            if name in bounds:
                length = bounds[name].end_of(segment_id, offset, length)
        return length

    def _available(self, position: OffsetsByStream, infos: _Infos) -> dict[str, dict[int, int]]:
        """The end of what may be read now of each segment of a position."""
        return {
            name: {item: self._end_of(name, item, offset, infos) for item, offset in cut.items()}
            for name, cut in position.items()
        }

    def _holds_back(self, position: OffsetsByStream, infos: _Infos) -> bool:
        """Whether the batch that would begin at ``position`` waits for more events.

        Those behind a scaling count: with ``order=key`` the batch ends there, and to wait would bring it no more.
        """
        begin, available = position, self._available(position, infos)
        if self._options.min_events_per_trigger is not None:
            begin, available = self._with_later(position, available, infos)
        backlogs = {
            (name, item): end - begin[name][item] for name, cut in available.items() for item, end in cut.items()
        }
        return self._limits.holds_back(self._events(), begin, backlogs, self._monotonic_s())

    def _with_later(
        self, position: OffsetsByStream, available: OffsetsByStream, infos: _Infos
    ) -> tuple[OffsetsByStream, dict[str, dict[int, int]]]:
        """Both with the segments behind the sealed ones, up to the tail: where each begins, and how far it is read."""
        first, last = {}, {}
        for name, cut in available.items():
            later = self._opened()[name].later(infos[name])
            first[name] = {**position[name], **{item: info.start_offset for item, info in later.items()}}
            last[name] = {**cut, **{item: self._end_of(name, item, 0, {name: later}) for item in later}}
        return first, last

    def _events(self) -> dict[str, SegmentEvents]:
        return {name: positions.events for name, positions in self._opened().items()}

    def _ends(self, position: OffsetsByStream, infos: _Infos) -> OffsetsByStream:
        """The end of the batch that comes to ``position``, in each segment: the nearest of all limits."""
        ends: Ends = self._available(position, infos)
        backlogs = {
            (name, item): ends[name][item] - offset for name, cut in position.items() for item, offset in cut.items()
        }
        self._limits.apply(self._events(), position, backlogs, ends)
        return ends

    def _report(self, ends: OffsetsByStream, available: OffsetsByStream, infos: _Infos) -> None:
        """With how much is left behind the batch, also in segments after a scaling that the position has not reached.

        Events only where the store keeps an index.
        """
        first, last = self._with_later(ends, available, infos)
        reported = {**SourceOffset(available).to_json(), "lag_bytes": lag_bytes(first, last)}
        events = [
            self._opened()[name].events_within({item: (first[name][item], end) for item, end in cut.items()})
            for name, cut in last.items()
        ]
        if None not in events:
            reported["lag_events"] = sum(count or 0 for count in events)
        self._reported = reported

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the data at the last look: Spark asks right after ``latestOffset``."""
        return self._reported

    # What to read

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """From the end's own record of its start: for a batch that is repeated, ``start`` may be a later ``latest``."""
        first, last = self._offsets.parsed(start), self._offsets.parsed(end)
        if last.start is None and last.first is not None:
            # A first batch of Spark 4.0 or 4.1, which began at another head, or a later one with new streams.
            first = SourceOffset({**last.first, **({} if start == self._initial else first.position)})
        if last.start is None and (first.position == last.position or not last.position):
            return []
        is_told = last.start is not None or last.first is not None
        if not is_told and start == self._initial and starts_at_latest(self._options):
            return []  # A first batch without rows, whose end does not say so in earlier versions and before Spark 4.2.
        if last.start is None and self._options.order == "key":
            raise InvalidArgument(
                "the checkpoint's last batch has no member 'from': Spark 4.0 or 4.1 planned it with order=none; start "
                "the query with order=none until that batch is done, then without"
            )
        if last.start is not None and first.start is not None:
            self._check_joined(first.position, last.start)
        begin = first.position if last.start is None else last.start
        if self._subscription.is_due(begin):  # It is repeated after a start, before anybody asks for the next one.
            self._subscription.hold(self._joining(begin))
        spans = self._spans_between(first, last) if last.start is None else spans_of_batch(last.start, last)
        if not self._has_looked:
            spans = self._written(spans)

        def locate(span: Span, offset: int) -> int:
            return self._read_before(span.scope, span.stream).events.locate(span.segment_id, offset, span.end)

        pieces = split(spans, self._options.min_partitions, self._options.max_partition_bytes, locate)
        gateway = worker_gateway(self._options.controller)
        packs = packs_of_batch(
            pieces, self._options.min_partitions, self._options.max_partition_bytes, self._options.packed_bytes
        )
        is_native = may_be_native(self._options, self._schema, gateway)
        return [SpanPartition.planned(gateway, *spans, is_native=is_native) for spans in packs]

    def _read_before(self, scope: str, stream: str) -> StreamPositions:
        """A stream of a batch, which the options may name no more where the batch is repeated."""
        return self._opened().get(scoped_name(scope, stream)) or self._positions(scope, stream)

    def _written(self, spans: Iterable[Span]) -> list[Span]:
        """The spans of a batch that is repeated, without those of streams that are others now."""
        of_streams = itertools.groupby(spans, lambda span: (span.scope, span.stream))
        return [span for name, found in of_streams for span in self._read_before(*name).written(list(found))]

    def _spans_between(self, first: SourceOffset, last: SourceOffset) -> list[Span]:
        """The batch of a Spark before 4.2, which does not say where it starts (``plain_stream_reader.py``)."""
        begin = self._begin(first.position)
        return [
            span
            for name, positions in self._opened().items()
            if name in last.position and name in begin
            for span in positions.spans(begin[name], last.position[name])
        ]

    def _check_joined(self, before: OffsetsByStream, start: OffsetsByStream) -> None:
        for name in set(before) & set(start):
            if before[name] != start[name]:
                raise InvalidArgument(
                    f"the checkpoint's offsets do not follow each other: a batch of {name} starts at {start[name]}, "
                    f"the one before ended at {before[name]}"
                )

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
        self._subscription.release(self._offsets.parsed(end).position)

    def stop(self) -> None:
        """Does nothing: Spark ends the process without asking (docs/spark-source-and-sink.md B.2)."""


def _is_begun_anew(begin: SegmentOffsets, moved: SegmentOffsets) -> bool:
    """Whether a position goes back to the head of another stream of the name, which a batch without rows does.

    The two offsets of one with rows would not tell of all segments that they were read from their beginning. Of a
    single one they do (``spans_of_batch``).
    """
    return len(begin) > 1 and any(offset < begin.get(item, 0) for item, offset in moved.items())
