"""A standalone with a second cache level: what was evicted is read from its disk and not from Tier 2."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.pages import open_page

MIB = 1 << 20
events = 600
event_bytes = 64 * 1024


def metric(cluster: StandaloneProcess, name: str) -> float:
    with open_page(cluster, cluster.ready()["metrics"][-1]) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def test_evicted_blocks_are_read_from_the_cache_folder(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    small = {"STORE__UNFLUSHED_BYTES_MAX": 8 * MIB, "CACHE__BYTES_MAX": 12 * MIB}
    environment = {f"PRAVEGA_SEGMENT_STORE_{name}": str(value) for name, value in small.items()}
    options: dict[str, Any] = {"tier1": "file", "containers": 1, "cache_folder": tmp_path / "cache", "cache_mib": 200}
    with running_cluster(tmp_path, environment=environment, **options) as cluster:
        written = [random.Random(number).randbytes(event_bytes) for number in range(events)]
        with StreamClient(cluster.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                for event in written:
                    writer.write(event, "k")
            assert metric(cluster, "pravega_store_cache_bytes") < 20 * MIB < events * event_bytes
            assert metric(cluster, "pravega_store_cache_disk_bytes") > 10 * MIB
            assert [event.data for event in read_events(client, "s", "t")] == written
        assert metric(cluster, "pravega_store_cache_disk_read_bytes_total") > 10 * MIB
        assert (tmp_path / "cache" / "segment-store-0").is_dir()
