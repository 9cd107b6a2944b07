"""Watermarks on a real standalone: the times of writers become events of the mark stream, in Pravega's format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_service.watermarks.watermark import Watermark, decode_watermark
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import mark_stream
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from tests.support.cluster import client, running_cluster
from tests.support.eventually import eventually_blocking

__all__ = ["client"]

SCOPE, STREAM = "times", "noted"
TIMEOUT_MS = 3_000
wait_max_s = 120.0
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRAVEGA_CONTROLLER_WATERMARKS__PERIOD_MS", "200")
        folder: Path = tmp_path_factory.mktemp("watermarks")
        with running_cluster(folder) as running:
            yield running


def watermarks(client: StreamClient, stream: str = STREAM) -> list[Watermark]:
    return [decode_watermark(event.data) for event in read_events(client, SCOPE, mark_stream(stream))]


def test_times_of_writers_become_rising_watermarks_and_a_silent_one_times_out(client: StreamClient) -> None:
    client.controller.create_scope(SCOPE)
    client.controller.create_stream(
        SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(2), timestamp_aggregation_timeout_ms=TIMEOUT_MS)
    )
    with EventWriter(client, SCOPE, STREAM) as silent, EventWriter(client, SCOPE, STREAM) as steady:
        for number in range(20):
            silent.write(b"silent %d" % number, f"key-{number}")
            steady.write(b"steady %d" % number, f"key-{number}")
        silent.note_time(1_000)
        with pytest.raises(InvalidArgument, match="INVALID_TIME"):
            silent.note_time(999)
        steady.note_time(1_500)
        eventually_blocking(lambda: len(watermarks(client)) > 0, "the first watermark", wait_max_s)
        time = 2_000

        def has_timed_out() -> bool:
            nonlocal time
            time += 100
            steady.write(b"later", f"key-{time}")
            steady.note_time(time)
            return watermarks(client)[-1].lower_time > 2_000

        eventually_blocking(has_timed_out, "the time-out of the silent writer", wait_max_s)
    found = watermarks(client)
    assert found[0].lower_time in (1_000, 1_500) and found[0].upper_time in (1_000, 1_500)
    lower = [item.lower_time for item in found]
    assert lower == sorted(set(lower))
    segments = client.controller.current_segments(SCOPE, STREAM)
    for item in found:
        assert [part.segment_id for part in item.position] == [segment.segment_id for segment in segments]
        assert item.position[0].key_start == 0.0 and item.position[-1].key_end == 1.0
    for before, after in itertools.pairwise(found):
        assert all(one.offset <= other.offset for one, other in zip(before.position, after.position, strict=True))
    lengths = {segment.segment_id: client.segments.info(segment.name).length for segment in segments}
    assert all(part.offset <= lengths[part.segment_id] for part in found[-1].position)


def test_a_writer_that_is_closed_says_goodbye(client: StreamClient) -> None:
    client.controller.create_scope(SCOPE)
    patient = StreamConfiguration(ScalingPolicy.fixed(1), timestamp_aggregation_timeout_ms=3_600_000)
    client.controller.create_stream(SCOPE, "closed", patient)
    with EventWriter(client, SCOPE, "closed") as writer:
        writer.note_time(1)
    assert not client.controller.remove_writer(SCOPE, "closed", "somebody else")
    eventually_blocking(
        lambda: not client.controller.remove_writer(SCOPE, "closed", writer.writer_id), "its mark to go", wait_max_s
    )


def test_a_commit_with_a_time_counts_as_a_report(client: StreamClient) -> None:
    client.controller.create_scope(SCOPE)
    client.controller.create_stream(SCOPE, "committed", StreamConfiguration(ScalingPolicy.fixed(1)))
    transaction = TransactionalWriter(client, SCOPE, "committed").begin()
    transaction.write(b"event", "key")
    transaction.commit(time_ms=7_000)
    found: list[Watermark] = []

    def is_written() -> bool:
        found[:] = watermarks(client, "committed")
        return bool(found)

    eventually_blocking(is_written, "the watermark", wait_max_s)
    assert [(item.lower_time, item.upper_time) for item in found] == [(7_000, 7_000)]
    (segment,) = client.controller.current_segments(SCOPE, "committed")
    assert found[0].position[0].offset == client.segments.info(segment.name).length > 0
