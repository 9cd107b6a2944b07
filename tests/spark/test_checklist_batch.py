"""Runs the official connector's check list: batch reads, metadata, and streams that reads create."""

from __future__ import annotations

import pytest

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.stream_cut import StreamCut
from pravega_streams.client import StreamClient
from tests.spark.batches import assert_same, events, read_events
from tests.spark.streams import Streams


@pytest.mark.parametrize("given", [{"start_stream_cut": "earliest", "end_stream_cut": "latest"}, {}])
def test_from_earliest_to_latest(streams: Streams, given: dict[str, str]) -> None:
    """Explicitly and by default: a frame made after more was written sees it."""
    streams.create("t", 3)
    streams.fill("t", 0, 60)
    assert_same(read_events(streams, "t", **given), events(streams, range(60)))
    streams.fill("t", 60, 100)
    assert_same(read_events(streams, "t", **given), events(streams, range(100)))


def cuts_now(streams: Streams) -> tuple[str, str]:
    (info,) = streams.read("t", metadata="StreamInfo").collect()
    return info.head_stream_cut, info.tail_stream_cut


def test_between_stream_cuts(streams: Streams) -> None:
    """Cuts as ``StreamInfo`` gave them at two times; reading once more gives the same, whatever was written since."""
    streams.create("t", 3)
    streams.fill("t", 0, 30)
    head, first = cuts_now(streams)
    streams.fill("t", 30, 60)
    head_later, second = cuts_now(streams)
    assert head == head_later
    expected = {
        (head, first): range(30),
        (head, second): range(60),
        (first, second): range(30, 60),
        (first, "latest"): range(30, 60),
        ("earliest", first): range(30),
    }
    for (start, end), numbers in expected.items():
        rows = read_events(streams, "t", start_stream_cut=start, end_stream_cut=end)
        assert_same(rows, events(streams, numbers))
        assert_same(rows, events(streams, numbers))
    streams.fill("t", 60, 70)
    assert_same(
        read_events(streams, "t", start_stream_cut=first, end_stream_cut=second), events(streams, range(30, 60))
    )
    assert_same(read_events(streams, "t", start_stream_cut=first), events(streams, range(30, 70)))


def test_one_frame_twice_in_a_query(streams: Streams) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 20)
    rows = read_events(streams, "t")
    assert_same(rows.union(rows), events(streams, range(20), range(20)))
    assert_same(rows.join(rows, "event"), events(streams, range(20)))


def test_stream_info(streams: Streams) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 20)
    head = StreamCut(streams.scope, "t", streams.gateway.head_cut(streams.scope, "t")).as_text()
    expected = streams.spark.createDataFrame(
        [(head, streams.tail("t"))], "head_stream_cut string, tail_stream_cut string"
    )
    assert_same(streams.read("t", metadata="StreamInfo"), expected)


def test_streams_of_a_scope(streams: Streams) -> None:
    for name in ("first", "second", "third"):
        streams.fill(name, 0, 3)
    expected = streams.spark.createDataFrame(
        [(streams.scope, name) for name in ("first", "second", "third")], "scope_name string, stream_name string"
    )
    assert_same(streams.read("first", metadata="Streams"), expected)


@pytest.mark.parametrize(
    ("given", "configuration"),
    [
        ({}, StreamConfiguration(ScalingPolicy.fixed(1))),
        ({"default_num_segments": "3"}, StreamConfiguration(ScalingPolicy.fixed(3))),
        (
            {"default_segment_target_rate_bytes_per_sec": "1024"},
            StreamConfiguration(ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 1, 3, 2)),
        ),
        (
            {"default_segment_target_rate_events_per_sec": "7"},
            StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 7, 3, 2)),
        ),
        (
            {"default_retention_duration_milliseconds": "86400000"},
            StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_time(86_400_000)),
        ),
        (
            {"default_retention_size_bytes": str(5 << 30)},
            StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(5 << 30)),
        ),
    ],
    ids=["nothing", "fixed", "bytes", "events", "duration", "size"],
)
def test_streams_that_a_read_creates(
    streams: Streams, given: dict[str, str], configuration: StreamConfiguration
) -> None:
    """As the controller has them; ours takes sizes above 2 GiB too."""
    scaling = (
        {"default_num_segments": "2", "default_scale_factor": "3"} if any("rate" in name for name in given) else {}
    )
    creates = {"allow_create_scope": "true", "allow_create_stream": "true"}
    assert streams.read("t", **creates, **scaling, **given).count() == 0
    with StreamClient(streams.controller) as client:
        made = client.controller.stream_configuration(streams.scope, "t")
    assert made.scaling == configuration.scaling
    assert made.retention == configuration.retention
    assert len(streams.gateway.current_segments(streams.scope, "t")) == configuration.scaling.min_segments
