"""Kills one of two controllers of a standalone in turn, under load: clients that know both see no error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.transaction import Transaction
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

S, T = "scope", "events"
kills = 4
events_per_transaction = 5
lease_ms = 90_000
restart_time_max_s = 90.0
work_time_max_s = 120.0
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path, controllers=2, segment_stores=2) as started:
        yield started


class Load:
    """Work that is repeated in threads until it is stopped; what it raises is kept, and ends it."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.rounds: dict[str, int] = {}
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[int], None]) -> None:
        def run() -> None:
            while not self._stopped.is_set():
                try:
                    work(self.rounds.get(name, 0))
                except BaseException as error:
                    self.errors.append(error)
                    return
                self.rounds[name] = self.rounds.get(name, 0) + 1

        thread = threading.Thread(target=run, name=name)
        thread.start()
        self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def commit_events(client: StreamClient, number: int) -> None:
    begun = client.controller.create_transaction(S, T, lease_ms)
    transaction = Transaction(client, S, T, begun, lease_ms)
    for item in range(events_per_transaction):
        transaction.write(b"%d/%d" % (number, item), "one key")
    transaction.flush()
    client.controller.commit_transaction(S, T, begun.transaction_id)


def administer(client: StreamClient, number: int) -> None:
    stream = f"short-lived-{number}"
    client.controller.create_stream(S, stream, StreamConfiguration(ScalingPolicy.fixed(2)))
    assert len(client.controller.current_segments(S, stream)) == 2
    client.controller.seal_stream(S, stream)
    client.controller.delete_stream(S, stream)


def test_clients_of_two_controllers_see_no_error_while_either_dies(cluster: StandaloneProcess) -> None:
    assert {"controller", "controller-1", "segment-store-1"} <= set(cluster.ready()["pids"])
    assert cluster.controller_uri.count(",") == 1
    load = Load()
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope(S)
        client.controller.create_stream(S, T, StreamConfiguration(ScalingPolicy.fixed(2)))
        load.start("transactions", lambda number: commit_events(client, number))
        load.start("streams", lambda number: administer(client, number))
        try:
            for kill in range(kills):
                worked = dict(load.rounds)
                name = ("controller", "controller-1")[kill % 2]
                killed = cluster.kill(name)
                eventually_blocking(
                    lambda worked=worked: bool(load.errors) or _went_on(load, worked),  # type: ignore[misc]
                    "work goes on with one controller",
                    work_time_max_s,
                )
                cluster.wait_restarted(name, killed, restart_time_max_s)
        finally:
            load.stop()
        assert load.errors == []
        committed = load.rounds["transactions"]
        expected = [b"%d/%d" % (number, item) for number in range(committed) for item in range(events_per_transaction)]
        eventually_blocking(lambda: count(client) >= len(expected), "all transactions are readable", work_time_max_s)
        assert [event.data for event in read_events(client, S, T)] == expected
        print(f"errors seen by clients 0 in {kills} kills; rounds of work: {load.rounds}")


def _went_on(load: Load, before: dict[str, int]) -> bool:
    return all(load.rounds.get(name, 0) > before.get(name, 0) + 1 for name in ("transactions", "streams"))


def count(client: StreamClient) -> int:
    return sum(1 for _ in read_events(client, S, T))
