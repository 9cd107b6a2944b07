"""Checks that the chunks of an export are its range, each byte once, over scalings and at ends in sealed segments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut
from pravega_spark.backfill.export_plan import ExportChunk, chunks_max, chunks_of_plan, divided
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.source.stream_positions import StreamPositions
from tests.unit.pravega_spark.streams import FakeStreams

event_bytes = 20


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def fill(streams: FakeStreams, segment_id: int, count: int) -> None:
    streams.append("t", segment_id, [b"x" * (event_bytes - 8)] * count)


def scaled(streams: FakeStreams) -> None:
    """Segments 0 and 1 of 100 events each, then 0 split in two of 50 each, and 100 more in 1."""
    streams.create("t", 2)
    fill(streams, 0, 100)
    fill(streams, 1, 100)
    for item in streams.scale("t", [0], [(0.0, 0.25), (0.25, 0.5)]):
        fill(streams, item, 50)
    fill(streams, 1, 100)


def plan_of(
    streams: FakeStreams, end: SegmentOffsets, chunk_bytes: int, start: SegmentOffsets | None = None
) -> list[ExportChunk]:
    start = streams.gateway.head_cut("s", "t") if start is None else start
    source = {"controller": streams.controller, "scope": "s", "stream": "t", "max_partition_bytes": "1m"}
    limits = {
        "start_stream_cut": StreamCut("s", "t", start).as_text(),
        "end_stream_cut": StreamCut("s", "t", end).as_text(),
    }
    return chunks_of_plan({"range": limits, "chunks": divided(source, limits, chunk_bytes)})


def ranges_of(streams: FakeStreams, chunks: list[ExportChunk]) -> list[list[tuple[int, int, int]]]:
    """The ranges of segments that each chunk reads."""
    positions = StreamPositions(streams.gateway, "s", "t", fail_on_data_loss=True)
    return [
        [
            (span.segment_id, span.start, span.end)
            for span in positions.spans(
                StreamCut.from_text(chunk.start).offsets, StreamCut.from_text(chunk.end).offsets
            )
        ]
        for chunk in chunks
    ]


def check_once(streams: FakeStreams, chunks: list[ExportChunk], end: SegmentOffsets) -> None:
    read = Counter[int]()
    for chunk, ranges in zip(chunks, ranges_of(streams, chunks), strict=True):
        assert sum(last - first for _, first, last in ranges) == chunk.size_bytes
        for item, first, last in ranges:
            assert read[item] == first, "the next byte of the segment"
            read[item] = last
    whole = StreamPositions(streams.gateway, "s", "t", fail_on_data_loss=True).spans(
        streams.gateway.head_cut("s", "t"), end
    )
    assert dict(read) == {span.segment_id: span.end for span in whole}


@pytest.mark.parametrize("chunk_bytes", [1, 5 * event_bytes, 80 * event_bytes, 150 * event_bytes, 10**9])
def test_chunks_over_a_scaling_have_each_byte_once(streams: FakeStreams, chunk_bytes: int) -> None:
    scaled(streams)
    end = streams.gateway.tail_cut("s", "t")
    chunks = plan_of(streams, end, chunk_bytes)
    check_once(streams, chunks, end)
    assert max(chunk.size_bytes for chunk in chunks) <= max(1.5 * chunk_bytes, 4 * event_bytes) + 4 * event_bytes
    assert len(chunks) <= 2 * 400 * event_bytes // chunk_bytes + 1
    assert (len(chunks) == 1) == (chunk_bytes == 10**9)


def test_an_end_in_a_segment_that_was_sealed_there(streams: FakeStreams) -> None:
    scaled(streams)
    end = {0: 100 * event_bytes, 1: 200 * event_bytes}
    chunks = plan_of(streams, end, 30 * event_bytes)
    check_once(streams, chunks, end)
    assert len(chunks) > 3


def test_positions_behind_the_end_are_no_cuts(streams: FakeStreams) -> None:
    """A read stands in the successors of a sealed segment at once, where the range still ends in it."""
    scaled(streams)
    done = 100 * event_bytes
    chunks = plan_of(streams, {0: done, 1: 200 * event_bytes}, 30 * event_bytes, start={0: done, 1: 0})
    assert all(set(StreamCut.from_text(chunk.end).offsets) == {0, 1} for chunk in chunks)
    assert sum(chunk.size_bytes for chunk in chunks) == 200 * event_bytes


def test_many_chunks_are_made_larger(streams: FakeStreams) -> None:
    streams.create("t")
    fill(streams, 0, 2 * chunks_max)
    end = streams.gateway.tail_cut("s", "t")
    chunks = plan_of(streams, end, 1)
    check_once(streams, chunks, end)
    assert chunks_max // 2 <= len(chunks) <= chunks_max


def test_a_range_without_events_is_one_chunk(streams: FakeStreams) -> None:
    streams.create("t", 2)
    end = streams.gateway.tail_cut("s", "t")
    (chunk,) = plan_of(streams, end, 1)
    assert chunk.size_bytes == 0


def test_the_plan_of_an_older_version_is_one_chunk() -> None:
    limits = {"start_stream_cut": "a", "end_stream_cut": "b"}
    assert chunks_of_plan({"range": limits}) == [ExportChunk("a", "b", 0)]
