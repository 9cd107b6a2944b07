"""Kills services while a query copies a stream: every event once, and the query does not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.streams import Streams
from tests.support.cluster import running_cluster

batches = 6
events_per_batch = 2000


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[StandaloneProcess]:
    """Services of its own: the others must not suffer."""
    with running_cluster(tmp_path / "services") as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["segment-store-0", "controller", "redis"])
def test_killed_in_mid_query(spark: SparkSession, killable: StandaloneProcess, tmp_path: Path, victim: str) -> None:
    streams = Streams(spark, killable.controller_uri, "crashes", tmp_path)
    try:
        streams.create("from", 2)
        streams.create("to", 3)
        rows = streams.stream("from").load()
        keyed = rows.selectExpr("event", "concat('k', cast(cast(event as string) as int) % 10) as routing_key")
        query = streams.start(keyed, "to", "checkpoint", {"processingTime": "0 seconds"})
        for number in range(batches):
            streams.fill("from", number * events_per_batch, (number + 1) * events_per_batch, job_id=f"job-{number}")
            if number == batches // 2:
                killed = killable.kill(victim)
                killable.wait_restarted(victim, killed)
        query.processAllAvailable()
        assert query.exception() is None
        query.stop()
        assert streams.numbers("from") == list(range(batches * events_per_batch))
        assert streams.numbers("to") == list(range(batches * events_per_batch))
    finally:
        streams.close()
