"""Kills a process that reads in a group: the others take over, and only what it had not recorded comes twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.readers.blocking import BlockingReaderGroup
from pravega_streams.stream_manager import StreamManager
from tests.support.cluster import cluster
from tests.support.eventually import eventually_blocking
from tests.support.repository import ROOT

__all__ = ["cluster"]

SCOPE, KEYS, EVENTS = "processes", 20, 4_000
read_time_max_s = 60.0
pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import sys
from pravega_streams import StreamManager
uri, scope, group, reader_id = sys.argv[1:]
with StreamManager(uri) as manager, manager.open_reader_group(scope, group).create_reader(reader_id) as reader:
    for event in reader:
        print(bytes(event).decode(), flush=True)
"""


class ReaderProcess:
    """A process that prints the events it reads; ``events`` are the lines that came out of it."""

    def __init__(self, uri: str, group: str, reader_id: str) -> None:
        self.events: list[str] = []
        arguments = [sys.executable, "-c", PROGRAM, uri, SCOPE, group, reader_id]
        self.process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.events.append(line.strip())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.finish()

    def finish(self) -> int:
        code = self.process.wait(read_time_max_s)
        self._thread.join(read_time_max_s)
        return code


@contextmanager
def reading(uri: str, group: str, *names: str) -> Iterator[list[ReaderProcess]]:
    started = [ReaderProcess(uri, group, name) for name in names]
    try:
        yield started
    finally:
        for item in started:
            if item.process.poll() is None:
                item.kill()


def write(manager: StreamManager, stream: str, numbers: range) -> None:
    with manager.create_writer(SCOPE, stream) as writer:
        for number in numbers:
            writer.write(f"k{number % KEYS}/{number}".encode(), f"k{number % KEYS}")


def scale(manager: StreamManager, stream: str, segments: int) -> None:
    controller = manager.client.controller
    sealed = [item.segment_id for item in controller.current_segments(SCOPE, stream)]
    controller.scale_stream(SCOPE, stream, sealed, [(n / segments, (n + 1) / segments) for n in range(segments)])


def in_order(events: list[str]) -> bool:
    """Whether the first occurrences of each key's events come in order."""
    last: dict[str, int] = {}
    for event in dict.fromkeys(events):
        key, _, number = event.partition("/")
        if int(number) <= last.get(key, -1):
            return False
        last[key] = int(number)
    return True


def test_a_killed_reader_costs_no_event(cluster: StandaloneProcess) -> None:
    group_name, stream = f"group-{uuid.uuid4().hex[:8]}", "events"
    with StreamManager(cluster.controller_uri) as manager:
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(3)))
        group: BlockingReaderGroup = manager.create_reader_group(SCOPE, group_name, [stream], refresh_time_ms=300)
        with reading(cluster.controller_uri, group_name, "r0", "r1", "r2") as readers:
            eventually_blocking(lambda: len(group.readers_online()) == 3, "three readers", read_time_max_s)
            write(manager, stream, range(EVENTS // 4))
            scale(manager, stream, 5)
            write(manager, stream, range(EVENTS // 4, EVENTS // 2))
            eventually_blocking(lambda: len(readers[0].events) > 50, "events at the first reader", read_time_max_s)
            readers[0].kill()
            scale(manager, stream, 3)
            write(manager, stream, range(EVENTS // 2, 3 * EVENTS // 4))
            group.reader_offline("r0")
            with reading(cluster.controller_uri, group_name, "r3") as added:
                write(manager, stream, range(3 * EVENTS // 4, EVENTS))
                manager.seal_stream(SCOPE, stream)
                assert [item.finish() for item in (*readers[1:], *added)] == [0, 0, 0]
                check(readers[0].events, [item.events for item in (*readers[1:], *added)])
        assert group.readers_online() == []


def check(killed: list[str], others: list[list[str]]) -> None:
    """Nothing lost; twice only what the killed one had read; the events of each key in order at every reader."""
    alive = Counter(event for events in others for event in events)
    assert alive.keys() | set(killed) == {f"k{number % KEYS}/{number}" for number in range(EVENTS)}
    assert set(alive.values()) == {1}, "the living read nothing twice"
    assert all(in_order(events) for events in (killed, *others))
