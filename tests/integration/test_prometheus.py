"""A real Prometheus scrapes a standalone under load: it reads every expression of rules and dashboard, and has series.

Needs the program: ``scripts/setup --prometheus``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.model.transaction_sets import SetMember, Sink
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from tests.support.alert_rules import alerts, expressions, panels
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.prometheus import Prometheus, program, running_prometheus

pytestmark = pytest.mark.skipif(program("prometheus") is None, reason="no Prometheus: scripts/setup --prometheus")

SCOPE, STREAM = "s", "t"
period_s = 1
load_pause_s = 0.05
series_time_max_s = 120.0
RATE_INTERVAL = "20s"
QUIET = {
    "pravega_store_problem": "nothing is wrong",
    "pravega_controller_problem": "nothing is wrong",
    "pravega_store_tier2_failures_total": "no call to Tier 2 failed",
    "pravega_controller_call_failures_total": "no call failed",
    "pravega_controller_watermark_age_seconds": "no writer notes time",
}
"""What may be without series, and why; everything else that the dashboard shows is there under load."""


class Load:
    """Writes, reads, commits a batch of a sink and subscribes, until it is stopped."""

    def __init__(self, controller: str) -> None:
        self._client = StreamClient(controller)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        with self._client as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM)
            groups = ReaderGroupClient(client.controller.transport)
            groups.update_cut(groups.subscribe(SCOPE, "query", [(SCOPE, STREAM)]), SCOPE, STREAM, {0: 0})
            transaction = TransactionalWriter(client, SCOPE, STREAM).begin()
            transaction.write(b"event", "k")
            transaction.flush()
            members = [SetMember(SCOPE, STREAM, transaction.transaction_id, 0, 1, 13)]
            sink = Sink("query", f"{SCOPE}/{STREAM}")
            client.sets.register(sink, "run", 0, members)
            client.sets.commit(sink, "run", 0, members, 1, 13)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with StreamClient(self._client.address) as client, EventWriter(client, SCOPE, STREAM) as writer:
            transactional = TransactionalWriter(client, SCOPE, STREAM)
            while not self._ended.wait(load_pause_s):
                writer.write(bytes(100), "k")
                writer.flush()
                transaction = transactional.begin()
                transaction.write(bytes(100), "k")
                transaction.commit()
                next(iter(read_events(client, SCOPE, STREAM)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), segment_stores=2, controllers=2) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(cluster: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    addresses = [address.removesuffix("/metrics") for address in cluster.ready()["metrics"]]
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with (
        Load(cluster.controller_uri),
        running_prometheus(folder, addresses[:2], addresses[2:], period_s) as started,
    ):
        eventually_blocking(lambda: started.targets_up() == 4, "four targets that answer", series_time_max_s)
        yield started


def test_every_expression_is_read(prometheus: Prometheus) -> None:
    for expression in expressions():
        prometheus.series(expression.replace("$__rate_interval", RATE_INTERVAL))
    with pytest.raises(ValueError, match="parse error"):
        prometheus.series("rate(pravega_store_ready[5m]")


def test_every_panel_has_series_under_load(prometheus: Prometheus) -> None:
    shown = [target["expr"].replace("$__rate_interval", RATE_INTERVAL) for one in panels() for target in one["targets"]]
    missing: list[str] = []

    def all_there() -> bool:
        wanted = [text for text in shown if not any(name in text for name in QUIET)]
        missing[:] = [text for text in wanted if not any(one["value"][1] != "NaN" for one in prometheus.series(text))]
        return not missing

    try:
        eventually_blocking(all_there, "series of every panel", series_time_max_s)
    except TimeoutError:
        raise AssertionError(f"without series: {missing}") from None


def test_every_rule_is_evaluated_and_a_cluster_that_is_well_fires_no_alert(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, str]]:
        (group,) = prometheus.ask("rules")["groups"]
        return list(group["rules"])

    eventually_blocking(lambda: all(one["health"] == "ok" for one in rules()), "evaluated rules", series_time_max_s)
    assert [one["name"] for one in rules()] == [one["alert"] for one in alerts()]
    assert [one["lastError"] for one in rules() if one.get("lastError")] == []
    quick = {one["alert"] for one in alerts() if one["for"] == "0m"}
    assert [one["name"] for one in rules() if one["state"] == "firing" and one["name"] in quick] == []


def test_a_store_that_is_stopped_makes_its_alert_pending(cluster: StandaloneProcess, prometheus: Prometheus) -> None:
    pid = cluster.kill("segment-store-0")
    down = 'ALERTS{alertname="StoreDown",alertstate="pending"}'
    begun_s = time.time()

    def was_seen() -> bool:
        data = prometheus.ask("query_range", query=down, start=str(begun_s), end=str(time.time()), step="1")
        return bool(data["result"])

    eventually_blocking(was_seen, "a pending alert", series_time_max_s)
    cluster.wait_restarted("segment-store-0", pid)
