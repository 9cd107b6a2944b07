"""Queries that name an event-time column: the watermarks of their stream follow, with and without transactions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from controller_service.watermarks.watermark import Watermark, decode_watermark
from pravega_common.errors import PravegaError
from pravega_common.names import mark_stream
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from tests.spark.streams import Streams
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

wait_max_s = 60.0
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Services that make watermarks many times a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRAVEGA_CONTROLLER_WATERMARKS__PERIOD_MS", "200")
        with running_cluster(tmp_path_factory.mktemp("services")) as running:
            yield running


def watermarks(client: StreamClient, scope: str, stream: str) -> list[Watermark]:
    try:
        return [decode_watermark(event.data) for event in read_events(client, scope, mark_stream(stream))]
    except PravegaError:  # not made before the first one
        return []


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_watermarks_follow_the_batches(
    watching: StandaloneProcess, spark: SparkSession, tmp_path: Path, exactly_once: str
) -> None:
    streams = Streams(spark, watching.controller_uri, f"scope-{uuid.uuid4().hex[:8]}", tmp_path)
    with contextlib.closing(streams), StreamClient(watching.controller_uri) as client:
        streams.create("from")
        streams.create("to", 2)
        rows = streams.stream("from").load()
        timed = rows.selectExpr("event", "timestamp_seconds(cast(cast(event as string) as bigint)) as at")
        for last in (100, 200):
            streams.fill("from", last - 100, last)
            given = {"exactly_once": exactly_once, "event_time_column": "at"}
            streams.start(timed, "to", "checkpoint", NOW, **given).awaitTermination()
            wanted_ms = (last - 1) * 1000

            def is_reached() -> bool:
                found = watermarks(client, streams.scope, "to")
                return bool(found) and found[-1].lower_time == wanted_ms  # noqa: B023

            eventually_blocking(is_reached, f"a watermark of {wanted_ms} ms", wait_max_s)
        found = watermarks(client, streams.scope, "to")
        assert [(item.lower_time, item.upper_time) for item in found] == [(99_000, 99_000), (199_000, 199_000)]
        tail = streams.gateway.tail_cut(streams.scope, "to")
        assert {part.segment_id: part.offset for part in found[-1].position} == tail
