"""Reads and writes over TLS with the authority's certificate as an option."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_common.errors import AuthenticationFailed
from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.streams import Streams
from tests.support.certificates import Authority
from tests.support.cluster import running_cluster


@pytest.fixture(scope="module")
def tls_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path_factory.mktemp("tls"), tls=True, tier1="file") as started:
        yield started


@pytest.fixture
def streams(tls_services: StandaloneProcess, spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    scope = f"scope-{uuid.uuid4().hex[:8]}"
    made = Streams(spark, tls_services.controller_uri, scope, tmp_path, ca_file=tls_services.ca_file)
    yield made
    made.close()


def test_a_batch_and_a_query_go_there_and_back(streams: Streams) -> None:
    streams.fill("from", 0, 200, default_num_segments=3)
    query = streams.run(streams.stream("from").load().select("event"), "to")
    streams.fill("from", 200, 300)
    query = streams.run(streams.stream("from").load().select("event"), "to")
    assert query.exception() is None
    assert streams.numbers("to") == list(range(300))


def test_a_query_stops_at_once_for_a_cluster_that_is_not_trusted(streams: Streams, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "another authority").file
    with pytest.raises(Exception, match="not trusted") as refused:
        streams.fill("from", 0, 10, ca_file=other)
    assert "PRAVEGA_CA_FILE" in str(refused.value)
    assert AuthenticationFailed.__name__ in str(refused.value)
