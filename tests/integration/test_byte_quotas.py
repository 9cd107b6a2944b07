"""Limits of bytes a second on a real standalone: a scope gets its rate, others are not slowed, changes hold.

Rates are those of some seconds, from the acknowledgements; a store reads the limits every 5 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pravega_common.model.scope_quota import ScopeQuota
from pravega_streams.batch.events import read_events, window_bytes
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from segment_service.quotas.limits_watch import period_s
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

event_bytes = 20_000
in_flight_bytes = 10 * event_bytes
rate = 1_000_000
known_after_s = period_s + 1.5
"""Time after which the store has read the limits, and the burst of a second is used up."""
measured_s = 8.0
windows = 3
pytestmark = pytest.mark.timeout(300)


class Load:
    """Writes to a scope until it is stopped; ``bytes`` are those acknowledged."""

    def __init__(self, controller_uri: str, scope: str) -> None:
        self.bytes = 0
        self.failure: BaseException | None = None
        self._uri = controller_uri
        self._scope = scope
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with StreamClient(self._uri) as client, EventWriter(client, self._scope, "t") as writer:
                while not self._stop.is_set():
                    for _ in range(in_flight_bytes // event_bytes):
                        writer.write(bytes(event_bytes), "k")
                    writer.flush()
                    self.bytes += in_flight_bytes
                    # So that a writer without a limit leaves something of the machine to the others.
                    self._stop.wait(0.02)
        except BaseException as error:
            self.failure = error

    @contextmanager
    def running(self) -> Iterator[Load]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(60)
        assert self.failure is None, self.failure


def rates(*loads: Load) -> list[float]:
    """Bytes a second of each, measured at the same time."""
    before, began_s = [load.bytes for load in loads], time.monotonic()
    time.sleep(measured_s)
    took_s = time.monotonic() - began_s
    return [(load.bytes - old) / took_s for load, old in zip(loads, before, strict=True)]


def set_quota(client: StreamClient, scope: str, quota: ScopeQuota) -> None:
    client.quotas.set(scope, quota)
    time.sleep(known_after_s)


def test_scopes_are_held_to_their_bytes_a_second(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster, StreamClient(cluster.controller_uri) as client:
        for scope in ("limited", "free"):
            client.controller.create_scope(scope)
            client.controller.create_stream(scope, "t")
        with (
            Load(cluster.controller_uri, "limited").running() as load,
            Load(cluster.controller_uri, "free").running() as other,
        ):
            eventually_blocking(lambda: load.bytes > 0 and other.bytes > 0, "first appends")
            unlimited, _ = rates(load, other)
            assert unlimited > 3 * rate

            set_quota(client, "limited", ScopeQuota(bytes_in=rate))
            limited, free = rates(load, other)
            assert limited == pytest.approx(rate, rel=0.2)
            assert free > 0.7 * unlimited

            set_quota(client, "limited", ScopeQuota(bytes_in=2 * rate))
            assert rates(load)[0] == pytest.approx(2 * rate, rel=0.2)

            set_quota(client, "limited", ScopeQuota())
            assert rates(load)[0] > 3 * rate

        set_quota(client, "limited", ScopeQuota(bytes_out=rate))
        assert read_rate(client, "limited") == pytest.approx(rate, rel=0.3)
        assert read_rate(client, "free") > 3 * rate


def read_rate(client: StreamClient, scope: str) -> float:
    """Bytes a second of a reader, after the burst: from the arrival of one window of bytes to that of a later one."""
    size, began_s = 0, 0.0
    for event in read_events(client, scope, "t"):
        began_s = began_s or time.monotonic()
        size += len(event.data)
        if size > windows * window_bytes:
            break
    return windows * window_bytes / (time.monotonic() - began_s)
