"""Offsets and partitions of micro-batches, as Spark asks for them, over the fake."""

from __future__ import annotations

import itertools
import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pravega_common.errors import DataCorruption, InvalidArgument, StreamNotFound, UnsupportedOperation
from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source import segment_events
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.idle_pause import IdlePause, looking_share, pause_max_s
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.source.partition_reader import SpanPartition
from pravega_spark.source.segment_events import located_excess_bytes_max, prepared_segment_bytes_max
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.source.stream_reader import StreamReader
from tests.support.fakes.stream_gateway import FakeBoundaries
from tests.unit.pravega_spark.source.queries import SCHEMA, Query, numbered, reader, standing_clock, steps_of
from tests.unit.pravega_spark.streams import FakeStreams

CALLS = (
    "segment_infos",
    "boundaries",
    "boundaries_of_many",
    "locate_offset",
    "locate_offsets",
    "read_heads",
    "open_range",
    "successors",
    "head_cut",
    "tail_cut",
)
"""What a plan asks a store for."""


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


class TestFromStartToEnd:
    def test_earliest_then_what_is_new(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 3))
        streams.append("t", 1, numbered(3, 5))
        query = Query(reader(streams))
        assert query.step() == [numbered(0, 3), numbered(3, 5)]
        assert query.step() is None
        streams.append("t", 1, numbered(5, 6))
        assert query.step() == [numbered(5, 6)]

    def test_latest_is_the_default_and_is_chosen_once(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 3))
        source = reader(streams, start_stream_cut="latest")
        first = source.initialOffset()
        streams.append("t", 0, numbered(3, 4))
        assert source.initialOffset() == first
        assert Query(source).step() == [numbered(3, 4)]

    def test_a_failed_first_batch_is_repeated_from_its_own_start(self, streams: FakeStreams) -> None:
        """Spark does not keep the initial offset: the restarted source would start at another latest."""
        streams.create("t")
        source = reader(streams, start_stream_cut="latest")
        start = source.initialOffset()
        streams.append("t", 0, numbered(0, 3))
        end = source.latestOffset(start, ReadAllAvailable())
        streams.append("t", 0, numbered(3, 9))
        restarted = Query(reader(streams, start_stream_cut="latest"))
        assert restarted.source.initialOffset() != start
        assert restarted.rows(restarted.source.initialOffset(), end) == [numbered(0, 3)]

    @pytest.mark.parametrize("order", ["key", "none"])
    @pytest.mark.parametrize("given", [{"start_stream_cut": "latest"}, {"start_time": "5000"}], ids=["latest", "time"])
    def test_a_first_batch_without_rows_is_repeated(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, order: str, given: dict[str, str]
    ) -> None:
        """Spark runs it all the same. What came since lies before the start of the source that repeats it."""
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: 1_000)
        streams.create("t")
        streams.append("t", 0, numbered(0, 3))
        query = Query(timed(streams, order=order, **given))
        start = query.source.initialOffset()
        assert query.step() == []
        assert query.source.latestOffset(start, ReadAllAvailable()) == json.loads(query.log[0]), "at a second look"
        streams.append("t", 0, numbered(3, 6))
        query.restart(timed(streams, order=order, **given))
        assert query.source.initialOffset() != start
        assert query.rows(query.source.initialOffset(), json.loads(query.log[0])) == []
        assert steps_of(query) == [numbered(3, 6)]

    @pytest.mark.parametrize("order", ["key", "none"])
    def test_a_first_batch_without_rows_of_an_earlier_version(self, streams: FakeStreams, order: str) -> None:
        """Its end is the initial offset, which does not say where the batch began."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 3))
        first = reader(streams, start_stream_cut="latest", order=order).initialOffset()
        streams.append("t", 0, numbered(3, 6))
        query = Query(reader(streams, start_stream_cut="latest", order=order))
        query.log = [json.dumps(first)]
        assert query.rows(query.source.initialOffset(), first) == []
        assert steps_of(query) == [numbered(3, 6)]

    def test_a_batch_that_a_spark_before_4_2_planned_is_no_first_one(self, streams: FakeStreams) -> None:
        """None of its offsets says where it began; from ``latest``, too, it has rows."""
        streams.create("t")
        source = reader(streams, start_stream_cut="latest", order="none")
        ends = [SourceOffset({"s/t": {0: count * 18}}).to_json() for count in (1, 3)]
        streams.append("t", 0, numbered(0, 4))
        assert source.initialOffset() not in ends
        assert Query(source).rows(*ends) == [numbered(1, 3)]

    def test_stream_cut_as_start_and_end(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        first = StreamCut("s", "t", streams.gateway.tail_cut("s", "t")).as_text()
        streams.append("t", 0, numbered(2, 4))
        last = StreamCut("s", "t", streams.gateway.tail_cut("s", "t")).as_text()
        streams.append("t", 0, numbered(4, 6))
        assert Query(reader(streams, start_stream_cut=first, end_stream_cut=last)).all() == numbered(2, 4)

    def test_cut_of_another_stream(self, streams: FakeStreams) -> None:
        streams.create("t")
        cut = StreamCut("s", "other", {0: 0}).as_text()
        with pytest.raises(InvalidArgument, match="the stream cut is of s/other, but the stream to read is s/t"):
            reader(streams, start_stream_cut=cut).initialOffset()

    def test_a_cut_that_leaves_out_keys(self, streams: FakeStreams) -> None:
        """Their events would be left out of the whole query, and nobody would know."""
        streams.create("t", 4)
        streams.append("t", 1, numbered(0, 3))
        whole = StreamCut("s", "t", dict.fromkeys(range(4), 0)).as_text()
        assert Query(reader(streams, start_stream_cut=whole)).all() == numbered(0, 3)
        for given, first in (({0: 0, 1: 0, 3: 0}, "0.5"), ({1: 0, 2: 0, 3: 0}, "0"), ({0: 0, 1: 0, 2: 0}, "0.75")):
            cut = StreamCut("s", "t", given).as_text()
            with pytest.raises(InvalidArgument, match=f"no segment of s/t for the keys from {first} on"):
                reader(streams, start_stream_cut=cut).initialOffset()

    def test_latest_as_end_is_where_the_stream_ends_at_the_start(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams, end_stream_cut="latest", approx_bytes_per_trigger="40"))
        query.source.initialOffset()
        streams.append("t", 0, numbered(4, 8))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(8, 9))
        assert query.all() == numbered(0, 4)
        query.restart(reader(streams, end_stream_cut="unbounded"))
        assert query.all() == numbered(4, 9)

    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_what_is_truncated_behind_the_end_is_not_missed(self, streams: FakeStreams, fails: str) -> None:
        """Nor before it, when the end was reached."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        end = StreamCut("s", "t", streams.gateway.tail_cut("s", "t")).as_text()
        streams.append("t", 0, numbered(4, 8))
        query = Query(reader(streams, end_stream_cut=end, fail_on_data_loss=fails))
        assert query.all() == numbered(0, 4)
        streams.gateway.truncate_stream("s", "t", {0: 5 * 18})
        query.restart(reader(streams, end_stream_cut=end, fail_on_data_loss=fails))
        assert query.step() is None

    def test_an_end_before_what_is_left(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        """A controller refuses a range whose end lies before its start, as the head does here."""
        between = streams.gateway.segments_between

        def refusing(scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
            if start.get(0, 0) > end.get(0, 0):
                raise InvalidArgument(f"cut {end} lies before {start}")
            return between(scope, stream, start, end)

        streams.create("t")
        streams.append("t", 0, numbered(0, 8))
        streams.gateway.truncate_stream("s", "t", {0: 5 * 18})
        monkeypatch.setattr(streams.gateway, "segments_between", refusing)
        end = StreamCut("s", "t", {0: 4 * 18}).as_text()
        start = StreamCut("s", "t", {0: 2 * 18}).as_text()
        with pytest.raises(
            DataCorruption, match=r"segment 0\.#epoch\.0 from offset 36, the first offset available is 90"
        ):
            Query(reader(streams, start_stream_cut=start, end_stream_cut=end)).step()
        given = {"start_stream_cut": start, "end_stream_cut": end, "fail_on_data_loss": "false"}
        assert Query(reader(streams, **given)).all() == []

    def test_an_end_that_is_not_found_at_once(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        end = StreamCut("s", "t", {0: 2 * 18}).as_text()
        query = Query(reader(streams, end_stream_cut=end))

        def refusing(scope: str, stream: str) -> SegmentOffsets:
            raise StreamNotFound(f"{scope}/{stream}")

        with monkeypatch.context() as patched:
            patched.setattr(streams.gateway, "head_cut", refusing)
            with pytest.raises(StreamNotFound):
                query.source.initialOffset()
        assert query.all() == numbered(0, 2)

    def test_several_streams(self, streams: FakeStreams) -> None:
        streams.create("a")
        streams.create("b", 2)
        streams.append("a", 0, numbered(0, 1))
        streams.append("b", 1, numbered(1, 2))
        query = Query(reader(streams, "a,b"))
        assert query.step() == [numbered(0, 1), numbered(1, 2)]

    def test_a_stream_added_starts_at_its_head_and_one_removed_is_an_error(self, streams: FakeStreams) -> None:
        streams.create("a")
        streams.create("b")
        streams.append("a", 0, numbered(0, 1))
        streams.append("b", 0, numbered(1, 2))
        query = Query(reader(streams, "a"))
        assert query.all() == numbered(0, 1)
        query.restart(reader(streams, "a,b"))
        assert query.all() == numbered(1, 2)
        query.restart(reader(streams, "b"))
        with pytest.raises(InvalidArgument, match="has a position in s/a, which the option 'stream' does not name"):
            query.step()
        streams.append("b", 0, numbered(2, 3))
        query.restart(reader(streams, "b", fail_on_data_loss="false"))
        assert query.all() == numbered(2, 3)

    def test_a_stream_added_need_not_be_in_the_cut_to_start_at(self, streams: FakeStreams) -> None:
        """The checkpoint takes precedence over it; also with AvailableNow, which asks for the start in any case."""
        for stream in ("a", "b"):
            streams.create(stream)
            streams.append(stream, 0, numbered(0, 4))
        cut = StreamCut("s", "a", {0: 18}).as_text()
        query = Query(reader(streams, "a", start_stream_cut=cut))
        query.source.prepareForTriggerAvailableNow()
        assert query.all() == numbered(1, 4)
        query.restart(reader(streams, "a,b", start_stream_cut=cut))
        query.source.prepareForTriggerAvailableNow()
        assert query.all() == numbered(0, 4)

    def test_a_batch_with_a_stream_that_is_given_up_is_repeated_whole(self, streams: FakeStreams) -> None:
        for stream in ("a", "b"):
            streams.create(stream)
            streams.append(stream, 0, numbered(0, 4))
        given = {"order": "none", "min_partitions": "4", "fail_on_data_loss": "false"}
        query = Query(reader(streams, "a,b", **given))
        start = query.source.initialOffset()
        rows = query.step()
        assert rows == [numbered(0, 2), numbered(2, 4)] * 2
        assert Query(reader(streams, "b", **given)).rows(start, json.loads(query.log[0])) == rows

    def test_empty_streams(self, streams: FakeStreams) -> None:
        """With nothing new the very object that Spark gave comes back, so that its text is the same."""
        streams.create("a", 2)
        streams.create("b")
        query = Query(reader(streams, "a,b", max_events_per_trigger="3", approx_bytes_per_trigger="40"))
        assert query.step() == []
        start = json.loads(query.log[0])
        assert query.source.latestOffset(start, query.source.getDefaultReadLimit()) is start
        query.source.prepareForTriggerAvailableNow()
        streams.append("b", 0, numbered(0, 4))
        assert query.step() is None
        query.source.prepareForTriggerAvailableNow()
        assert steps_of(query) == [numbered(0, 3), numbered(3, 4)]


class TestScaling:
    def test_never_a_segment_and_its_successor_in_one_batch(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        low, high = streams.scale("t", [0], [(0.0, 0.5), (0.5, 1.0)])
        streams.append("t", low, numbered(2, 3))
        streams.append("t", high, numbered(3, 4))
        (merged,) = streams.scale("t", [low, high], [(0.0, 1.0)])
        streams.append("t", merged, numbered(4, 5))
        query = Query(reader(streams))
        assert query.step() == [numbered(0, 2)]
        assert query.step() == [numbered(2, 3), numbered(3, 4)]
        assert query.step() == [numbered(4, 5)]
        assert query.step() is None

    def test_a_merge_waits_for_both_predecessors(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 1))
        streams.append("t", 1, numbered(1, 9))
        (merged,) = streams.scale("t", [0, 1], [(0.0, 1.0)])
        streams.append("t", merged, numbered(9, 10))
        query = Query(reader(streams, approx_bytes_per_trigger="40"))
        steps = []
        while (step := query.step()) is not None:
            steps.append([event for partition in step for event in partition])
        assert steps[-1] == numbered(9, 10)
        assert sorted(event for step in steps for event in step) == numbered(0, 10)
        assert len(steps) > 2

    def test_ranges_that_are_cut_anew(self, streams: FakeStreams) -> None:
        """Of three segments each new one has two predecessors but the first: all three are replaced together."""
        streams.create("t")
        old = streams.scale("t", [0], [(0.0, 0.2), (0.2, 0.9), (0.9, 1.0)])
        streams.append("t", old[2], numbered(0, 3))
        new = streams.scale("t", old, [(0.0, 0.3), (0.3, 0.5), (0.5, 1.0)])
        for index, item in enumerate(new):
            streams.append("t", item, numbered(3 + 2 * index, 5 + 2 * index))
        steps = steps_of(Query(reader(streams, max_events_per_trigger="3")))
        assert [sorted(step) for step in steps[:1]] == [numbered(0, 3)]
        assert sorted(event for step in steps for event in step) == numbered(0, 9)

    def test_empty_segments_are_stepped_over(self, streams: FakeStreams) -> None:
        streams.create("t")
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        (third,) = streams.scale("t", [second], [(0.0, 1.0)])
        query = Query(reader(streams))
        assert query.step() == [], "the checkpoint has the last one"
        assert query.step() is None
        streams.append("t", third, numbered(0, 1))
        assert query.step() == [numbered(0, 1)]

    def test_a_batch_over_a_scale_is_repeated_from_its_offsets(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 2))
        streams.append("t", 1, numbered(2, 4))
        streams.scale("t", [0], [(0.0, 0.25), (0.25, 0.5)])
        source = reader(streams)
        query = Query(source)
        start = source.initialOffset()
        assert query.step() == [numbered(0, 2), numbered(2, 4)]
        streams.append("t", 1, numbered(4, 5))
        assert Query(reader(streams)).rows(start, json.loads(query.log[-1])) == [numbered(0, 2), numbered(2, 4)]

    def test_sealed_stream_ends_quietly(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        streams.gateway.seal_stream("s", "t")
        query = Query(reader(streams))
        assert query.step() == [numbered(0, 2)]
        assert query.step() is None


class TestLimits:
    def test_bytes_in_proportion_and_no_segment_starves(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 90))
        streams.append("t", 1, numbered(90, 100))
        event_bytes = 8 + 10
        query = Query(reader(streams, approx_bytes_per_trigger=str(10 * event_bytes)))
        assert isinstance(query.source.getDefaultReadLimit(), ReadMaxBytes)
        assert query.step() == [numbered(0, 9), numbered(90, 91)]
        assert sorted(query.all()) == numbered(9, 90) + numbered(91, 100)

    def test_at_least_one_event_of_each(self, streams: FakeStreams) -> None:
        streams.create("t", 3)
        for segment in range(3):
            streams.append("t", segment, numbered(segment * 3, segment * 3 + 3))
        query = Query(reader(streams, approx_bytes_per_trigger="1"))
        for round_number in range(3):
            assert query.step() == [
                numbered(segment * 3 + round_number, segment * 3 + round_number + 1) for segment in range(3)
            ]
        assert query.step() is None

    def test_no_limit_under_read_all_available(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 50))
        assert Query(reader(streams, approx_bytes_per_trigger="1"), ReadAllAvailable()).step() == [numbered(0, 50)]

    def test_available_now_stops_where_the_stream_ended(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams, approx_bytes_per_trigger="20"))
        query.source.prepareForTriggerAvailableNow()
        streams.append("t", 0, numbered(4, 6))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(6, 8))
        assert query.all() == numbered(0, 4)
        query.source.prepareForTriggerAvailableNow()
        assert query.all() == numbered(4, 8)

    def test_latest_offset_and_lag_are_reported(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams, approx_bytes_per_trigger="1"))
        assert query.source.reportLatestOffset() is None
        query.step()
        reported = query.source.reportLatestOffset()
        assert reported is not None
        assert (reported["streams"], reported["lag_bytes"]) == ({"s/t": {"0": 72}}, 54)

    def test_lag_counts_what_comes_after_a_scaling(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sealed segments are asked for once, however many triggers it takes to come to them."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(4, 10))
        low, high = streams.scale("t", [second], [(0.0, 0.5), (0.5, 1.0)])
        streams.append("t", low, numbered(10, 13))
        query = Query(reader(streams, approx_bytes_per_trigger="18"))
        asked: list[int] = []

        def noted(call: Callable[[str, str, Any], Any]) -> Callable[[str, str, Any], Any]:
            def noting(scope: str, stream: str, segments: int | list[int]) -> Any:
                asked.extend([segments] if isinstance(segments, int) else segments)
                return call(scope, stream, segments)

            return noting

        for name in ("segment_info", "boundaries", "boundaries_of_many"):
            monkeypatch.setattr(streams.gateway, name, noted(getattr(streams.gateway, name)))
        lags = []
        for _ in range(3):
            query.step()
            reported = query.source.reportLatestOffset()
            assert reported is not None and reported["lag_bytes"] == reported["lag_events"] * 18
            lags.append(reported["lag_events"])
        assert lags == [12, 11, 10]
        assert asked.count(second) == 2 and asked.count(high) == 3
        query.all()
        reported = query.source.reportLatestOffset()
        assert reported is not None and (reported["lag_bytes"], reported["lag_events"]) == (0, 0)

    def test_lag_ends_where_the_read_does(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(4, 10))
        end = StreamCut("s", "t", {second: 2 * 18}).as_text()
        query = Query(reader(streams, end_stream_cut=end, approx_bytes_per_trigger="18"))
        query.step()
        reported = query.source.reportLatestOffset()
        assert reported is not None and (reported["lag_bytes"], reported["lag_events"]) == (5 * 18, 5)

    def test_events_in_proportion_and_no_segment_starves(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 90))
        streams.append("t", 1, numbered(90, 100))
        query = Query(reader(streams, max_events_per_trigger="10"))
        limit = query.source.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows) and limit.max_rows == 10
        assert query.step() == [numbered(0, 9), numbered(90, 91)]
        reported = query.source.reportLatestOffset()
        assert reported is not None and (reported["lag_events"], reported["lag_bytes"]) == (90, 90 * 18)
        assert sorted(query.all()) == numbered(9, 90) + numbered(91, 100)

    def test_events_in_proportion_before_the_index_knows_them(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 90))
        streams.append("t", 1, numbered(90, 100))
        known = streams.gateway.boundaries

        def late(scope: str, stream: str, segment_id: int) -> FakeBoundaries:
            if segment_id == 0:
                return known(scope, stream, segment_id)
            return FakeBoundaries(streams.gateway.segment_info(scope, stream, segment_id), [])

        monkeypatch.setattr(streams.gateway, "boundaries", late)
        assert Query(reader(streams, max_events_per_trigger="20")).step() == [numbered(0, 18), numbered(90, 92)]

    def test_event_limits_end_inside_blocks_of_many_events(self, streams: FakeStreams) -> None:
        """The index knows only the ends of blocks."""
        streams.create("t")
        for first in range(0, 60, 20):
            data = b"".join(struct.pack(">ii", 0, len(event)) + event for event in numbered(first, first + 20))
            streams.gateway.append("s/t/0.#epoch.0", data, 20)
        steps = steps_of(Query(reader(streams, max_events_per_trigger="7")))
        assert [len(step) for step in steps] == [7] * 8 + [4]
        assert [event for step in steps for event in step] == numbered(0, 60)

    def large_block(self, streams: FakeStreams) -> list[bytes]:
        """As a transaction leaves it: 3 MB of which the index knows the end alone, and one more event."""
        events = [f"{number:06}".encode() + bytes(94) for number in range(30_001)]
        streams.create("t")
        for block in (events[:-1], events[-1:]):
            data = b"".join(struct.pack(">ii", 0, len(event)) + event for event in block)
            streams.gateway.append("s/t/0.#epoch.0", data, len(block))
        return events

    def test_event_limits_inside_a_large_transaction(self, streams: FakeStreams) -> None:
        events = self.large_block(streams)
        steps = steps_of(Query(reader(streams, max_events_per_trigger="12500")))
        assert [len(step) for step in steps] == [12_500, 12_500, 5_001]
        assert [event for step in steps for event in step] == events

    def test_byte_limits_inside_a_large_transaction(self, streams: FakeStreams) -> None:
        """Behind the limit by what is stepped over at once, or by so little to the next boundary that it is taken."""
        events = self.large_block(streams)
        steps = steps_of(Query(reader(streams, approx_bytes_per_trigger="1000000")))
        sizes = [sum(len(event) + 8 for event in step) for step in steps]
        assert len(sizes) == 4 and all(1_000_000 <= size < 1_070_000 for size in sizes[:2])
        assert sizes[2] <= 1_000_000 + located_excess_bytes_max
        assert [event for step in steps for event in step] == events

    def test_byte_limits_without_an_index(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*_: object) -> None:
            raise UnsupportedOperation("no index")

        events = self.large_block(streams)
        for name in ("boundaries", "locate_offset"):
            monkeypatch.setattr(streams.gateway, name, unknown)
        steps = steps_of(Query(reader(streams, approx_bytes_per_trigger="1200000")))
        sizes = [sum(len(event) + 8 for event in step) for step in steps]
        assert len(sizes) == 3 and all(1_200_000 <= size < 1_270_000 for size in sizes[:2])
        assert [event for step in steps for event in step] == events

    @pytest.mark.parametrize(("size", "events", "count"), [("54", "5", 3), ("540", "5", 5)])
    def test_the_nearest_of_two_limits(self, streams: FakeStreams, size: str, events: str, count: int) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 40))
        query = Query(reader(streams, approx_bytes_per_trigger=size, max_events_per_trigger=events))
        assert isinstance(query.source.getDefaultReadLimit(), ReadMaxBytes)
        assert query.step() == [numbered(0, count)]
        query.limit = ReadAllAvailable()
        assert query.step() == [numbered(count, 40)]

    @pytest.mark.parametrize("limits", [{"max_events_per_trigger": "3"}, {"approx_bytes_per_trigger": "40"}])
    def test_order_over_scaling_with_limits(self, streams: FakeStreams, limits: dict[str, str]) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 10))
        low, high = streams.scale("t", [0], [(0.0, 0.5), (0.5, 1.0)])
        streams.append("t", low, numbered(10, 20))
        streams.append("t", high, numbered(20, 25))
        (merged,) = streams.scale("t", [low, high], [(0.0, 1.0)])
        streams.append("t", merged, numbered(25, 40))
        query = Query(reader(streams, **limits))
        query.source.prepareForTriggerAvailableNow()
        streams.append("t", merged, numbered(40, 50))
        events = query.all()
        assert sorted(events) == numbered(0, 40)
        assert events[:10] == numbered(0, 10)
        assert events[25:] == numbered(25, 40)
        assert [event for event in events if event in numbered(10, 20)] == numbered(10, 20)

    def test_without_an_index_events_are_not_limited(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def unknown(*_: object) -> None:
            raise UnsupportedOperation("no index")

        streams.create("t")
        streams.append("t", 0, numbered(0, 10))
        monkeypatch.setattr(streams.gateway, "boundaries", unknown)
        query = Query(reader(streams, max_events_per_trigger="3"))
        assert query.step() == [numbered(0, 10)]
        assert "limits of events per trigger have no effect" in caplog.text
        streams.append("t", 0, numbered(10, 20))
        query = Query(reader(streams, approx_bytes_per_trigger="1"))
        query.step()
        reported = query.source.reportLatestOffset()
        assert reported is not None and "lag_events" not in reported
        with pytest.raises(UnsupportedOperation, match=r"keeps no index of that .* use start_stream_cut"):
            timed(streams, start_time="5").initialOffset()

    def test_small_ranges_share_a_partition(self, streams: FakeStreams) -> None:
        streams.create("t", 3)
        for segment in range(3):
            streams.append("t", segment, numbered(segment, segment + 1))
        query = Query(reader(streams, packed_bytes="65536"))
        assert query.step() == [numbered(0, 3)]
        query.restart(reader(streams, packed_bytes="40"))
        for segment in range(3):
            streams.append("t", segment, numbered(segment, segment + 1))
        assert query.step() == [numbered(0, 2), numbered(2, 3)]

    def test_splitting_with_order_none(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 8))
        assert Query(reader(streams, order="none", min_partitions="4")).step() == [
            numbered(index, index + 2) for index in range(0, 8, 2)
        ]


class TestLoss:
    def truncated(self, streams: FakeStreams) -> Query:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams))
        assert query.all() == numbered(0, 4)
        streams.append("t", 0, numbered(4, 8))
        streams.gateway.truncate_stream("s", "t", {0: 6 * 18})
        return query

    def test_truncated_before_planning(self, streams: FakeStreams) -> None:
        query = self.truncated(streams)
        with pytest.raises(
            DataCorruption, match=r"s/t was lost .*segment 0\.#epoch\.0 from offset 72, .* available is 108"
        ):
            query.step()
        query.restart(reader(streams, fail_on_data_loss="false"))
        assert query.all() == numbered(6, 8)

    def test_truncated_between_planning_and_reading(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 8))
        for fails in ("true", "false"):
            source = reader(streams, fail_on_data_loss=fails)
            start = {"version": 1, "streams": {"s/t": {"0": 0}}}
            end = {"version": 1, "streams": {"s/t": {"0": 144}}, "from": {"s/t": {"0": 0}}}
            streams.gateway.truncate_stream("s", "t", {0: 36})
            if fails == "true":
                with pytest.raises(DataCorruption, match="from offset 0, the first offset available is 36"):
                    Query(source).rows(start, end)
            else:
                assert Query(source).rows(start, end) == [numbered(2, 8)]

    def test_deleted_segment(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams, approx_bytes_per_trigger="20"))
        query.step()
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(4, 6))
        streams.gateway.truncate_stream("s", "t", {second: 18})
        with pytest.raises(DataCorruption, match=r"segment 0\.#epoch\.0 from offset 36, the segment is deleted"):
            query.step()
        query.restart(reader(streams, fail_on_data_loss="false"))
        assert query.all() == numbered(5, 6)

    @pytest.mark.parametrize("limit", ["max_events_per_trigger", "approx_bytes_per_trigger"])
    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_deleted_while_it_is_planned(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, limit: str, fails: str
    ) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(4, 8))
        source = reader(streams, fail_on_data_loss=fails, **{limit: "20"})
        plan = source._ends

        def truncating(*given: Any, **named: Any) -> Any:
            streams.gateway.truncate_stream("s", "t", {second: 18})
            return plan(*given, **named)

        monkeypatch.setattr(source, "_ends", truncating)
        query = Query(source)
        if fails == "true":
            with pytest.raises(DataCorruption, match=r"s/t was lost .* segment \d+\.#epoch\.\d+ from offset 0, "):
                query.all()
        else:
            assert query.all() == numbered(5, 8)

    @pytest.mark.parametrize("limit", ["max_events_per_trigger", "approx_bytes_per_trigger", "min_events_per_trigger"])
    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_truncated_while_it_is_planned(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, limit: str, fails: str
    ) -> None:
        """Before the next boundary that the index knows, so that events are stepped over from what is gone."""
        streams.create("t")
        for first in range(0, 40, 20):
            data = b"".join(struct.pack(">ii", 0, len(event)) + event for event in numbered(first, first + 20))
            streams.gateway.append("s/t/0.#epoch.0", data, 20)
        query = Query(reader(streams, max_events_per_trigger="4"))
        assert query.step() == [numbered(0, 4)]
        query.restart(reader(streams, fail_on_data_loss=fails, **{limit: "6"}))
        plan = query.source._holds_back

        def truncating(*given: Any, **named: Any) -> Any:
            streams.gateway.truncate_stream("s", "t", {0: 8 * 18})
            return plan(*given, **named)

        monkeypatch.setattr(query.source, "_holds_back", truncating)
        if fails == "true":
            with pytest.raises(DataCorruption, match=r"s/t was lost .* from offset 72, the first .* available is 144"):
                query.all()
        else:
            assert query.all() == numbered(8, 40)

    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_deleted_before_a_batch_is_repeated(self, streams: FakeStreams, fails: str) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 8))
        given = {"order": "none", "min_partitions": "4", "fail_on_data_loss": fails}
        source = reader(streams, **given)
        start = source.initialOffset()
        end = source.latestOffset(start, ReadAllAvailable())
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.gateway.truncate_stream("s", "t", {second: 0})
        query = Query(reader(streams, **given))
        if fails == "true":
            with pytest.raises(DataCorruption, match=r"segment 0\.#epoch\.0 from offset 0, the segment is deleted"):
                query.rows(start, end)
        else:
            assert query.rows(start, end) == [[]]

    def test_deleted_and_created_anew(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 4))
        query = Query(reader(streams))
        assert query.all() == numbered(0, 4)
        going_on = Query(reader(streams, fail_on_data_loss="false"))
        going_on.log = list(query.log)
        streams.gateway.seal_stream("s", "t")
        streams.gateway.delete_stream("s", "t")
        with pytest.raises(DataCorruption, match=r"stream s/t was lost .* 0\.#epoch\.0 .* the segment is deleted"):
            query.step()
        assert going_on.step() is None
        streams.create("t", 3)
        streams.append("t", 3, numbered(4, 8))
        with pytest.raises(DataCorruption, match=r"s/t was deleted and made again.* it is not one of its segments"):
            query.step()
        assert going_on.all() == numbered(4, 8)

    def test_created_anew_with_the_same_segments(self, streams: FakeStreams) -> None:
        """Segment numbers begin again, as on a store that was set up afresh."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        start = {"version": 1, "streams": {"s/t": {"0": 5000}}}
        with pytest.raises(DataCorruption, match=r"deleted and made again.* offset 5000, but it has 36 bytes"):
            reader(streams).latestOffset(start, ReadAllAvailable())
        query = Query(reader(streams, fail_on_data_loss="false"))
        query.log = [json.dumps(start)]
        assert query.step() == [numbered(0, 2)]
        streams.append("t", 0, numbered(2, 4))
        again = Query(reader(streams, fail_on_data_loss="false"))
        assert again.rows(start, json.loads(query.log[-1])) == [numbered(0, 2)], "repeated"
        assert steps_of(query) == [numbered(2, 4)]

    def test_a_batch_that_is_repeated_over_a_shorter_stream(self, streams: FakeStreams) -> None:
        """A reader of a range that was never written waits for it: each attempt of its task would, without end."""
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 3))
        streams.append("t", 1, numbered(3, 6))
        start = {"version": 2, "streams": {"s/t": {"0": 0, "1": 0}}}
        end = {"version": 2, "streams": {"s/t": {"0": 5000, "1": 54}}, "from": start["streams"]}
        with pytest.raises(DataCorruption, match=r"s/t was deleted .* ends at 5000, and it has 54 bytes now; begin"):
            reader(streams).partitions(start, end)
        query = Query(reader(streams, fail_on_data_loss="false"))
        query.log.append(json.dumps(end))
        assert query.rows(start, end) == [], "what there is comes with the next batches, once"
        assert [event for step in steps_of(query) for event in step] == numbered(0, 6)

    @pytest.mark.parametrize("order", ["key", "none"])
    @pytest.mark.parametrize("position", [{"0": 5000, "1": 27}, {"0": 27, str(2**32 + 7): 50}], ids=["short", "other"])
    def test_created_anew_with_a_segment_that_looks_as_before(
        self, streams: FakeStreams, order: str, position: dict[str, int]
    ) -> None:
        """Another one tells that it is of another stream, of which nothing was read; 27 lies inside an event."""
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 3))
        streams.append("t", 1, numbered(3, 6))
        query = Query(reader(streams, fail_on_data_loss="false", order=order))
        query.log = [json.dumps({"version": 1, "streams": {"s/t": position}})]
        assert sorted(query.all()) == numbered(0, 6)
        ends = [json.loads(line) for line in query.log]
        again = Query(reader(streams, fail_on_data_loss="false", order=order))
        batches = [again.rows(start, end) for start, end in itertools.pairwise(ends)]
        assert sorted(event for parts in batches for part in parts for event in part) == numbered(0, 6), "repeated"

    @pytest.mark.parametrize("order", ["key", "none"])
    def test_created_anew_with_the_same_segments_and_limits(self, streams: FakeStreams, order: str) -> None:
        """What the first trigger leaves is of the next one, also over a scaling."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 3))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(3, 5))
        streams.gateway.truncate_stream("s", "t", {0: 18})
        query = Query(reader(streams, fail_on_data_loss="false", order=order, max_events_per_trigger="1"))
        query.log = [json.dumps({"version": 2, "streams": {"s/t": {"0": 5000}}, "from": {"s/t": {"0": 4000}}})]
        assert steps_of(query) == [numbered(number, number + 1) for number in range(1, 5)]


class TestLossBeforeAnEnd:
    def filled(self, streams: FakeStreams) -> tuple[Query, int]:
        """A query that has read two of eight events in segment 0, which has a successor with four."""
        streams.create("t")
        streams.append("t", 0, numbered(0, 8))
        query = Query(reader(streams, approx_bytes_per_trigger="36"))
        assert query.step() == [numbered(0, 2)]
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(8, 12))
        return query, second

    def end(self, second: int, kind: str) -> dict[str, str]:
        if kind == "time":
            return {"end_time": "1000"}
        cut = StreamCut("s", "t", {second: 4 * 18}).as_text()
        return {"end_stream_cut": cut if kind == "cut" else kind}

    @pytest.mark.parametrize("kind", ["latest", "cut", "time", "unbounded"])
    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_a_segment_that_is_deleted(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, kind: str, fails: str
    ) -> None:
        """The end knows only what was left when it was found."""
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: 10)
        query, second = self.filled(streams)
        streams.gateway.truncate_stream("s", "t", {second: 2 * 18})
        query.restart(reader(streams, fail_on_data_loss=fails, **self.end(second, kind)))
        query.source.prepareForTriggerAvailableNow()
        if fails == "true":
            with pytest.raises(
                DataCorruption, match=r"s/t was lost .* segment 0\.#epoch\.0 from offset 36, the segment"
            ):
                query.step()
        else:
            assert query.all() == numbered(10, 12)

    @pytest.mark.parametrize("behind", [0, 18])
    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_nothing_is_left_before_the_end(self, streams: FakeStreams, behind: int, fails: str) -> None:
        query, second = self.filled(streams)
        end = StreamCut("s", "t", {second: 2 * 18}).as_text()
        streams.gateway.truncate_stream("s", "t", {second: 2 * 18 + behind})
        query.restart(reader(streams, fail_on_data_loss=fails, end_stream_cut=end))
        if fails == "true":
            with pytest.raises(DataCorruption, match=r"segment 0\.#epoch\.0 from offset 36, the segment is deleted"):
                query.step()
        else:
            assert query.all() == []

    def test_what_lies_behind_the_end_is_not_missed(self, streams: FakeStreams) -> None:
        """Although the end has newer segments for other keys."""
        streams.create("t", 2)
        streams.append("t", 0, numbered(0, 2))
        (lower,) = streams.scale("t", [0], [(0.0, 0.5)])
        (upper,) = streams.scale("t", [1], [(0.5, 1.0)])
        streams.append("t", lower, numbered(2, 4))
        streams.append("t", upper, numbered(4, 6))
        end = StreamCut("s", "t", {0: 2 * 18, upper: 18}).as_text()
        query = Query(reader(streams, end_stream_cut=end))
        assert query.all() == [*numbered(0, 2), *numbered(4, 5)]
        (lowest,) = streams.scale("t", [lower], [(0.0, 0.5)])
        assert query.step() is None
        streams.gateway.truncate_stream("s", "t", {lowest: 0, upper: 18})
        assert query.step() is None
        query.restart(reader(streams, end_stream_cut=end))
        assert query.step() is None
        streams.gateway.seal_stream("s", "t")
        streams.gateway.delete_stream("s", "t")
        assert query.step() is None


class TestTime:
    def filled(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Five events a second, over a scale: at 1 s and 2 s into one segment, at 3 s and 4 s into two others."""
        clock = {"now": 0}
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: clock["now"])
        streams.create("t")
        segments = [0]
        for second in range(1, 5):
            clock["now"] = second * 1000
            if second == 3:
                segments = streams.scale("t", [0], [(0.0, 0.5), (0.5, 1.0)])
            for segment in segments:
                streams.append("t", segment, numbered(second * 10, second * 10 + 5))
        return segments

    def of(self, *seconds: int) -> list[bytes]:
        return sorted(
            event for second in seconds for event in numbered(second * 10, second * 10 + 5) * (1 + (second > 2))
        )

    def test_start(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filled(streams, monkeypatch)
        for start, seconds in (
            ("500", (1, 2, 3, 4)),
            ("2000", (2, 3, 4)),
            ("2500", (3, 4)),
            ("4000", (4,)),
            ("9000", ()),
        ):
            assert sorted(Query(timed(streams, start_time=start)).all()) == self.of(*seconds), start

    def test_a_restart_does_not_look_for_the_start_again(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With AvailableNow it did, over all scalings since the head of the stream."""
        self.filled(streams, monkeypatch)
        query = Query(timed(streams, start_time="2500"))
        query.source.prepareForTriggerAvailableNow()
        assert sorted(query.all()) == self.of(3, 4)
        monkeypatch.setattr(StreamPositions, "cut_at_time", None)
        query.restart(timed(streams, start_time="2500"))
        query.source.prepareForTriggerAvailableNow()
        assert query.all() == []

    def test_end_in_the_past(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        """It takes all from before the time, and the block in which the time lies."""
        self.filled(streams, monkeypatch)
        for end, more in (("1500", [b"event-0020"]), ("2500", [b"event-0030"] * 2), ("3900", [b"event-0040"] * 2)):
            got = sorted(Query(timed(streams, start_time="0", end_time=end)).all())
            assert got == sorted(self.of(*range(1, int(end) // 1000 + 1)) + more), end

    def test_batch(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filled(streams, monkeypatch)
        given = {
            "controller": streams.controller,
            "scope": "s",
            "stream": "t",
            "start_time": "2000",
            "end_time": "3000",
        }
        source = BatchReader(ReadOptions.parse(given, Use.BATCH_READ), SCHEMA)
        rows = [
            row
            for partition in source.partitions()
            for batch in source.read(partition)
            for row in batch.column(0).to_pylist()
        ]
        assert sorted(rows) == sorted(self.of(2) + [b"event-0030"] * 2)

    def test_end_in_the_future(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = {"now": 1_000_000}
        monkeypatch.setattr("pravega_spark.source.stream_reader.time.time_ns", lambda: clock["now"] * 1_000_000)
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: clock["now"])
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        query = Query(timed(streams, start_time="0", end_time="1002000"))
        assert query.all() == numbered(0, 2)
        clock["now"] += 1000
        streams.append("t", 0, numbered(2, 4))
        assert query.all() == numbered(2, 4)
        clock["now"] += 2000
        streams.append("t", 0, numbered(4, 9))
        assert query.all() == numbered(4, 5)
        clock["now"] += 10_000
        streams.append("t", 0, numbered(9, 12))
        assert query.all() == []

    def test_an_end_that_came_between_two_triggers(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the last trigger knew of the index is not all that was written before the end."""
        clock = {"now": 1_000_000}
        monkeypatch.setattr("pravega_spark.source.stream_reader.time.time_ns", lambda: clock["now"] * 1_000_000)
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: clock["now"])
        streams.create("t")
        streams.append("t", 0, numbered(0, 4))
        query = Query(timed(streams, start_time="0", end_time="1030000", max_events_per_trigger="1"))
        assert query.step() == [numbered(0, 1)]
        clock["now"] += 20_000
        streams.append("t", 0, numbered(4, 6))
        clock["now"] += 40_000
        assert query.all() == numbered(1, 6)

    @pytest.mark.parametrize("call", ["head_cut", "segment_infos", "boundaries"])
    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_what_is_truncated_while_a_time_is_looked_for_is_not_missed(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, call: str, fails: str
    ) -> None:
        """It lies before what the walk from the head leads to, or is no more there when the read begins."""
        segments = self.filled(streams, monkeypatch)
        asked = getattr(streams.gateway, call)
        times = {"start_time": "3000", "end_time": "4000"}
        source = timed(streams, fail_on_data_loss=fails, **times)

        def truncating(*given: Any) -> Any:
            if call == "boundaries":
                streams.gateway.truncate_stream("s", "t", dict.fromkeys(segments, 0))
            found = asked(*given)
            streams.gateway.truncate_stream("s", "t", dict.fromkeys(segments, 0))
            return found

        monkeypatch.setattr(streams.gateway, call, truncating)
        assert sorted(Query(source).all()) == sorted(self.of(3) + [b"event-0040"] * 2)

    def test_a_stream_that_is_deleted_before_the_end(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where it may be missed the others are read to the end, and what is created again comes behind it."""
        clock = {"now": 1_000_000}
        monkeypatch.setattr("pravega_spark.source.stream_reader.time.time_ns", lambda: clock["now"] * 1_000_000)
        monkeypatch.setattr(streams.gateway, "now_ms", lambda: clock["now"])
        for name in ("t", "u"):
            streams.create(name)
            streams.append(name, 0, numbered(0, 2))
        query = Query(timed(streams, stream="t,u", start_time="0", end_time="1010000", fail_on_data_loss="false"))
        assert query.all() == numbered(0, 2) * 2
        streams.gateway.seal_stream("s", "u")
        streams.gateway.delete_stream("s", "u")
        streams.append("t", 0, numbered(2, 4))
        clock["now"] += 20_000
        assert query.all() == numbered(2, 4)
        streams.create("u")
        streams.append("u", 1, numbered(4, 6))
        assert query.all() == []


def timed(streams: FakeStreams, **given: str) -> StreamReader:
    options = {"controller": streams.controller, "scope": "s", "stream": "t", **given}
    return StreamReader(ReadOptions.parse(options, Use.STREAM_READ), SCHEMA, standing_clock)


class TestDamage:
    def test_batches_must_follow_each_other(self, streams: FakeStreams) -> None:
        streams.create("t")
        start = {"version": 1, "streams": {"s/t": {"0": 5}}, "from": {"s/t": {"0": 0}}}
        end = {"version": 1, "streams": {"s/t": {"0": 9}}, "from": {"s/t": {"0": 6}}}
        with pytest.raises(InvalidArgument, match="do not follow each other"):
            reader(streams).partitions(start, end)

    def test_an_end_needs_its_start(self, streams: FakeStreams) -> None:
        """A batch that an earlier Spark planned and did not finish lacks it; who upgrades gives the option up."""
        with pytest.raises(InvalidArgument, match=r"no member 'from': Spark 4\.0 or 4\.1 .* order=none until"):
            reader(streams).partitions(
                {"version": 1, "streams": {"s/t": {"0": 5}}}, {"version": 1, "streams": {"s/t": {"0": 9}}}
            )

    def test_a_range_that_ends_inside_an_event(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        end = {"version": 1, "streams": {"s/t": {"0": 25}}, "from": {"s/t": {"0": 0}}}
        with pytest.raises(DataCorruption, match=r"at offset 18 .* ends at 25; is the position not between two events"):
            Query(reader(streams)).rows({"version": 1, "streams": {"s/t": {"0": 0}}}, end)

    def test_partitions_are_pickled(self, streams: FakeStreams) -> None:
        import pickle

        streams.create("t")
        streams.append("t", 0, numbered(0, 2))
        source = reader(streams)
        end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
        (partition,) = pickle.loads(pickle.dumps(source.partitions(source.initialOffset(), end)))
        assert isinstance(partition, SpanPartition)
        shipped = pickle.loads(pickle.dumps(reader(streams)))
        assert [row for batch in shipped.read(partition) for row in batch.column(0).to_pylist()] == numbered(0, 2)


class TestEnoughEvents:
    """With ``min_events_per_trigger``, on a clock of the test."""

    def query(self, streams: FakeStreams, **given: str) -> tuple[Query, list[float]]:
        now = [0.0]
        options = {"controller": streams.controller, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
        made = ReadOptions.parse({**options, **given}, Use.STREAM_READ)
        return Query(StreamReader(made, SCHEMA, lambda: now[0], lambda _: None)), now

    def test_a_batch_begins_when_there_are_enough(self, streams: FakeStreams) -> None:
        streams.create("t", 2)
        query, _ = self.query(streams, min_events_per_trigger="10", max_events_per_trigger="12")
        streams.append("t", 0, numbered(0, 5))
        streams.append("t", 1, numbered(5, 9))
        assert query.step() == []
        told = query.source.reportLatestOffset()
        assert told is not None and told["lag_events"] == 9
        streams.append("t", 1, numbered(9, 25))
        taken = [sum(map(len, query.step() or [])) for _ in range(2)]
        assert all(10 <= count <= 12 for count in taken)
        assert query.step() is None, "few are left"

    def test_none_waits_for_longer_than_it_may(self, streams: FakeStreams) -> None:
        streams.create("t")
        query, now = self.query(streams, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
        assert query.step() == []
        now[0] = 100.0
        streams.append("t", 0, numbered(0, 3))
        assert query.step() is None
        now[0] = 129.0
        assert query.step() is None
        now[0] = 130.0
        assert query.step() == [numbered(0, 3)]
        # The next ones have a time of their own.
        streams.append("t", 0, numbered(3, 4))
        assert query.step() is None
        now[0] = 160.0
        assert query.step() == [numbered(3, 4)]

    def test_few_before_a_scaling_do_not_wait_where_enough_are_behind_it(self, streams: FakeStreams) -> None:
        """No more come to them. The batch ends at the scaling all the same."""
        streams.create("t")
        query, now = self.query(streams, min_events_per_trigger="10", max_trigger_delay="30s")
        streams.append("t", 0, numbered(0, 3))
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(3, 9))
        assert query.step() == []
        streams.append("t", second, numbered(9, 10))
        assert steps_of(query) == [numbered(0, 3)], "seven are left"
        streams.append("t", second, numbered(10, 13))
        assert steps_of(query) == [numbered(3, 13)]
        assert now == [0.0]

    def test_triggers_that_take_all_wait_for_none(self, streams: FakeStreams) -> None:
        streams.create("t")
        streams.append("t", 0, numbered(0, 3))
        query, _ = self.query(streams, min_events_per_trigger="10")
        query.limit = ReadAllAvailable()
        assert query.step() == [numbered(0, 3)]
        streams.append("t", 0, numbered(3, 5))
        again, _ = self.query(streams, min_events_per_trigger="10", max_events_per_trigger="10")
        again.source.prepareForTriggerAvailableNow()
        assert again.all() == numbered(0, 5)


class TestCosts:
    """What a trigger asks of the store, in calls."""

    @pytest.fixture
    def calls(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        counted: Counter[str] = Counter()

        def noted(name: str) -> Callable[..., Any]:
            call = getattr(streams.gateway, name)

            def noting(*arguments: Any) -> Any:
                counted[name] += 1
                return call(*arguments)

            return noting

        for name in CALLS:
            monkeypatch.setattr(streams.gateway, name, noted(name))
        return counted

    def test_an_idle_trigger_asks_once_for_all_segments(self, streams: FakeStreams, calls: Counter[str]) -> None:
        streams.create("t", 40)
        query = Query(reader(streams))
        assert query.step() == []
        calls.clear()
        assert query.step() is None
        assert calls == {"segment_infos": 1}

    def test_a_read_at_its_end_asks_for_nothing(self, streams: FakeStreams, calls: Counter[str]) -> None:
        streams.create("t", 3)
        streams.append("t", 1, numbered(0, 4))
        query = Query(reader(streams, end_stream_cut="latest"))
        assert query.all() == numbered(0, 4)
        streams.scale("t", [1], [(0.3, 0.6)])
        calls.clear()
        assert query.step() is None
        assert not calls

    @pytest.mark.parametrize("ahead_bytes", [prepared_segment_bytes_max, 60])
    def test_a_plan_with_a_limit_of_events_asks_for_all_segments_together(
        self, streams: FakeStreams, calls: Counter[str], monkeypatch: pytest.MonkeyPatch, ahead_bytes: int
    ) -> None:
        """Also where the events of a batch lie behind what is read ahead, and the index must lead to them."""
        monkeypatch.setattr(segment_events, "prepared_segment_bytes_max", ahead_bytes)
        streams.create("t", 40)
        for segment in range(40):
            streams.append("t", segment, numbered(segment * 10, segment * 10 + 10))
        query = Query(reader(streams, max_events_per_trigger="200"))
        query.source.initialOffset()
        calls.clear()
        assert sum(len(rows) for rows in query.step() or []) == 200
        assert calls.total() - calls["open_range"] <= 6
        assert calls["open_range"] == 40, "one for each partition that is read, and none for the plan"
        # The next plan knows what was written meanwhile.
        streams.append("t", 0, numbered(400, 500))
        second = [len(rows) for rows in query.step() or []]
        assert sum(second) <= 200 and max(second) > 10

    def test_a_plan_with_a_limit_of_bytes_asks_for_all_segments_together(
        self, streams: FakeStreams, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(segment_events, "prepared_segment_bytes_max", 10)
        streams.create("t", 40)
        for segment in range(40):
            streams.append("t", segment, numbered(segment * 10, segment * 10 + 10))
        query = Query(reader(streams, approx_bytes_per_trigger="4000"))
        query.source.initialOffset()
        calls.clear()
        assert 0 < sum(len(rows) for rows in query.step() or []) < 400
        assert calls.total() - calls["open_range"] <= 6
        assert calls["open_range"] == 40

    def test_a_source_that_is_idle_looks_less_often(self, streams: FakeStreams) -> None:
        """A look is put off and not left out: what was written before it is found."""
        clock = {"now": 0.0}
        slept: list[float] = []

        def now_s() -> float:
            clock["now"] += 0.005  # A look takes 5 ms.
            return clock["now"]

        streams.create("t", 3)
        query = Query(self.reader(streams, now_s, slept.append))
        assert steps_of(query) == [[]]
        assert slept == []
        assert query.step() is None
        streams.append("t", 0, numbered(0, 3))
        assert query.step() == [numbered(0, 3)]
        assert slept == [pytest.approx(0.005 * looking_share - 0.005)] * 2
        # What was found is followed at once.
        streams.append("t", 0, numbered(3, 5))
        assert query.step() == [numbered(3, 5)]
        assert len(slept) == 2

    def test_a_look_is_never_put_off_for_long(self, streams: FakeStreams) -> None:
        clock = iter(range(0, 1_000, 10))
        slept: list[float] = []
        streams.create("t")
        query = Query(self.reader(streams, lambda: float(next(clock)), slept.append))
        assert steps_of(query) == [[]]
        # Ten seconds went by since the last look, which took as long.
        assert query.step() is None
        assert slept == []

    @pytest.mark.parametrize(
        ("look_s", "idle_s", "wait_s"),
        [
            (0.0005, 0.0, 0.0),
            (0.0005, 0.4, 0.02),
            (0.0005, 1.0, 0.05),
            (0.0005, 600.0, 0.2),
            (0.0015, 600.0, 0.3),
            (0.005, 0.0, 0.3),
            (0.01, 600.0, pause_max_s),
        ],
    )
    def test_the_longer_a_source_is_idle_the_less_often_it_looks(
        self, look_s: float, idle_s: float, wait_s: float
    ) -> None:
        pause = IdlePause()
        position = {"streams": 1}
        pause.found_nothing(position, 100.0, 100.0)
        began_s = 100.0 + idle_s
        pause.found_nothing(position, began_s, began_s + look_s)
        assert pause.wait_s(position, began_s + look_s) == pytest.approx(wait_s)
        assert pause.wait_s({"streams": 2}, began_s + look_s) == 0

    def test_available_now_never_waits_for_a_look(self, streams: FakeStreams) -> None:
        clock = iter(range(1_000))
        slept: list[float] = []
        streams.create("t")
        source = self.reader(streams, lambda: float(next(clock)), slept.append)
        source.prepareForTriggerAvailableNow()
        query = Query(source)
        assert steps_of(query) == [[]]
        assert query.step() is None
        assert slept == []

    def reader(self, streams: FakeStreams, now_s: Callable[[], float], sleep: Callable[[float], None]) -> StreamReader:
        options = {"controller": streams.controller, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
        return StreamReader(ReadOptions.parse(options, Use.STREAM_READ), SCHEMA, now_s, sleep)
