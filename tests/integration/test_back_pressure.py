"""Stops Tier 2 for a minute under load and then kills the store: accepted bytes stay bounded, and none is lost.

MinIO is paused (it accepts connections and answers nothing, the worst way to be down). The writer goes on until the
store takes no more, waits, and goes on by itself when Tier 2 is back.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

unflushed_bytes_max = 16 * 1024 * 1024
event_bytes = 64 * 1024
outage_s = 60.0
in_flight_bytes_max = 64 * 1024 * 1024
"""Bytes under way beyond the limit: blocks of the writer, sockets, the store's queue."""


class Load:
    """Numbered events of one key, each acknowledged before the count of acknowledged ones goes up."""

    def __init__(self, controller_uri: str) -> None:
        self.controller_uri = controller_uri
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with StreamClient(self.controller_uri) as client, EventWriter(client, "s", "t") as writer:
                while not self.stop.is_set():
                    for number in range(self.acknowledged, self.acknowledged + 8):
                        writer.write(b"%08d" % number + b"x" * event_bytes, "k")
                    writer.flush()
                    self.acknowledged += 8
        except BaseException as error:
            self.failure = error

    def goes_on(self, more: int, timeout_s: float = 120.0) -> None:
        target = self.acknowledged + more

        def is_reached() -> bool:
            assert self.failure is None, self.failure
            return self.acknowledged >= target

        eventually_blocking(is_reached, "further appends", timeout_s)


@pytest.mark.slow
def test_tier2_stopped_for_a_minute_then_the_store_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SEGMENT_STORE_STORE__UNFLUSHED_BYTES_MAX", str(unflushed_bytes_max))
    with running_cluster(tmp_path, tier2="minio") as cluster:
        with StreamClient(cluster.controller_uri) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
        load = Load(cluster.controller_uri)
        load.thread.start()
        try:
            load.goes_on(100)
            minio = cluster.pid("minio")
            os.kill(minio, signal.SIGSTOP)
            before, started_s = load.acknowledged, time.monotonic()
            # A real outage: the store's limits and the client's patience both run by real clocks.
            time.sleep(outage_s - 10)
            stalled = load.acknowledged
            time.sleep(10)
            accepted_bytes = (load.acknowledged - before) * event_bytes
            assert load.acknowledged - stalled <= 8, "appends went on without Tier 2"
            assert accepted_bytes <= unflushed_bytes_max + in_flight_bytes_max
            assert load.failure is None
            store = cluster.kill("segment-store-0")
            os.kill(minio, signal.SIGCONT)
            cluster.wait_restarted("segment-store-0", store)
            load.goes_on(200)
        finally:
            load.stop.set()
            load.thread.join(timeout=180)
        assert load.failure is None
        print(f"accepted {accepted_bytes >> 20} MiB in {time.monotonic() - started_s:.0f} s without Tier 2")
        with StreamClient(cluster.controller_uri) as client:
            numbers = [int(event.data[:8]) for event in read_events(client, "s", "t")]
        assert numbers == sorted(set(numbers)), "out of order or duplicated"
        assert set(range(load.acknowledged)) <= set(numbers), "lost"
