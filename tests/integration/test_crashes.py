"""Kills store, controller and Redis under write load: every acknowledged event is there once, in order per key.

Writers run in threads and note what was acknowledged (a flush returned). After three kills of one part, spread over the
load, the whole stream is read and compared with the notes: acknowledged events exactly once, all others at most once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

SCOPE, STREAM = "crash", "events"
kills = 3
writers = 2
flush_events = 50
load_before_kill_s = 1.5


@dataclass
class Load:
    """One writer: numbered events of its own keys, flushed in groups, until it is stopped."""

    controller_uri: str
    name: str
    acknowledged: int = 0
    written: int = 0
    failure: BaseException | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with StreamClient(self.controller_uri) as client, EventWriter(client, SCOPE, STREAM) as writer:
                while not self.stop.is_set():
                    for _ in range(flush_events):
                        key = f"{self.name}-{self.written % 7}"
                        writer.write(f"{key}:{self.written}".encode() + b"." * 200, key)
                        self.written += 1
                    writer.flush()
                    self.acknowledged = self.written
        except BaseException as error:
            self.failure = error


def acknowledged_at_least(loads: list[Load], more: int) -> None:
    """Waits until every writer got this many further acknowledgements: the part that was killed serves again."""
    targets = [load.acknowledged + more for load in loads]

    def are_reached() -> bool:
        for load in loads:
            assert load.failure is None, load.failure
        return all(load.acknowledged >= target for load, target in zip(loads, targets, strict=True))

    eventually_blocking(are_reached, "writes after the kill", 90)


def compare(cluster: StandaloneProcess, loads: list[Load]) -> None:
    with StreamClient(cluster.controller_uri) as client:
        events = [event.data.rstrip(b".").decode() for event in read_events(client, SCOPE, STREAM)]
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        key, _, number = event.rpartition(":")
        found[key].append(int(number))
    assert not {key: numbers for key, numbers in found.items() if numbers != sorted(numbers)}, "out of order"
    counts = Counter(events)
    assert not {event: count for event, count in counts.items() if count > 1}, "duplicated"
    for load in loads:
        expected = {f"{load.name}-{number % 7}:{number}" for number in range(load.acknowledged)}
        assert not expected - counts.keys(), "lost"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["segment-store-0", pytest.param("controller", marks=pytest.mark.long), "redis"])
def test_acknowledged_events_survive_kills(part: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        with StreamClient(cluster.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(3)))
        loads = [Load(cluster.controller_uri, f"writer{number}") for number in range(writers)]
        threads = [threading.Thread(target=load.run) for load in loads]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                acknowledged_at_least(loads, flush_events)
                # Real load on a real cluster, so that the kill meets work in every stage.
                time.sleep(load_before_kill_s)
                pid = cluster.kill(part)
                cluster.wait_restarted(part, pid)
                acknowledged_at_least(loads, flush_events)
        finally:
            for load in loads:
                load.stop.set()
            for thread in threads:
                thread.join(timeout=120)
        assert not [load.failure for load in loads if load.failure is not None]
        compare(cluster, loads)
        print(f"{part}: {sum(load.acknowledged for load in loads)} events acknowledged over {kills} kills")


@pytest.mark.slow
def test_a_restart_on_the_same_folder_finds_everything(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        with StreamClient(cluster.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM)
            with EventWriter(client, SCOPE, STREAM) as writer:
                for number in range(500):
                    writer.write(f"k:{number}".encode(), "k")
        assert cluster.stop() == 0
        cluster.start()
        with StreamClient(cluster.controller_uri) as client:
            events = [event.data for event in read_events(client, SCOPE, STREAM)]
        assert events == [f"k:{number}".encode() for number in range(500)]
