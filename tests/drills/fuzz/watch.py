"""Watches a cluster while peers attack it: a good client's waits, the memory of processes, what they log."""

from __future__ import annotations

import multiprocessing
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from pravega_common.errors import PravegaError
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.event.event_writer import EventWriter
from tests.drills.fuzz.world import CLIENT, GOOD, GOOD_STREAM, client_of

write_pause_s: Final = 0.01
answer_max_s: Final = 60.0
"""How long the good client may take for its first event, and for its end."""
look_pause_s: Final = 0.5
MiB: Final = 1024 * 1024
memory_growth_bytes_max: Final[Mapping[str, int]] = {
    "segment-store-0": 384 * MiB,
    "controller": 256 * MiB,
    "redis": 512 * MiB,
}
"""How much more than in the quiet a process may hold: its caches and queues, full."""
_UNFORESEEN: Final = re.compile(
    r"Traceback \(most recent call last\)|unforeseen|handler failed|internal error|\bcheck failed"
)
log_lines_shown: Final = 5


@dataclass
class GoodWrites:
    """What a good client wrote, and how long it waited."""

    waits_s: list[tuple[float, float]] = field(default_factory=list)
    """When each write began, as ``time.monotonic``, and how long it took."""
    errors: list[str] = field(default_factory=list)


def _write(uri: str, ended: Event, told: Connection) -> None:
    """Runs in a process of its own: says when the first event is acknowledged, and at the end what was written."""
    done = GoodWrites()
    try:
        with client_of(CLIENT, uri) as client, EventWriter(client, GOOD, GOOD_STREAM) as writer:
            while not ended.is_set():
                begun_s = time.monotonic()
                writer.write(b"good %d" % len(done.waits_s), "key")
                writer.flush()
                done.waits_s.append((begun_s, time.monotonic() - begun_s))
                if len(done.waits_s) == 1:
                    told.send(None)
                ended.wait(write_pause_s)
    except PravegaError as error:
        done.errors.append(f"{type(error).__name__}: {error}")
    told.send(done)


class GoodClient:
    """Writes an event at a time, waits for its acknowledgement, and goes on: its waits say how others are served.

    It is a process of its own: a thread of the drill would wait for the interpreter's lock whenever the drill, which
    shares its core with the attack, holds it.
    """

    def __init__(self, uri: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._uri = uri
        self._ended = context.Event()
        self._heard, told = context.Pipe(duplex=False)
        self._process = context.Process(target=_write, args=(uri, self._ended, told), name="good-client", daemon=True)
        self._done = GoodWrites()
        self._is_done = False

    def start(self) -> None:
        """Returns once the first event is acknowledged, or cannot be written."""
        self._process.start()
        self._hear()

    def _hear(self) -> None:
        if not self._heard.poll(answer_max_s):
            self._done.errors.append(f"it was silent for {answer_max_s:g} s")
            self._is_done = True
        elif (message := self._heard.recv()) is not None:
            self._done, self._is_done = message, True

    @property
    def errors(self) -> list[str]:
        return self._done.errors

    def end(self) -> None:
        """Stop writing, and compare what is there with what was acknowledged."""
        self._ended.set()
        if not self._is_done:
            self._hear()
        self._process.join(answer_max_s)
        with client_of(CLIENT, self._uri) as client:
            found = [bytes(event.data) for event in read_events(client, GOOD, GOOD_STREAM)]
        written = len(self._done.waits_s)
        if found != [b"good %d" % number for number in range(written)]:
            self.errors.append(f"{written} events were acknowledged, and others are there: {len(found)}")

    def between(self, from_s: float, to_s: float) -> list[float]:
        """The waits of the writes that began in this time, in seconds."""
        return [wait_s for begun_s, wait_s in self._done.waits_s if from_s <= begun_s < to_s]


class ProcessWatch(threading.Thread):
    """Looks at the processes of a cluster: whether they are the same ones, and how much memory they hold."""

    def __init__(self, cluster: StandaloneProcess) -> None:
        super().__init__(name="process-watch", daemon=True)
        self.pids = {name: int(pid) for name, pid in cluster.ready()["pids"].items()}
        self._cluster = cluster
        self._ended = threading.Event()
        self.before = {name: resident_bytes(pid) for name, pid in self.pids.items()}
        self.most = dict(self.before)
        self.gone: set[str] = set()

    def run(self) -> None:
        while not self._ended.wait(look_pause_s):
            for name, pid in self.pids.items():
                held = resident_bytes(pid)
                self.most[name] = max(self.most[name], held)
                if not held:
                    self.gone.add(name)

    def end(self) -> None:
        self._ended.set()
        self.join()
        now = {name: int(pid) for name, pid in self._cluster.ready()["pids"].items()}
        self.gone |= {name for name, pid in self.pids.items() if now.get(name) != pid}

    def problems(self) -> list[str]:
        found = [f"{name} ended" for name in sorted(self.gone)]
        for name, limit in memory_growth_bytes_max.items():
            grown = self.most[name] - self.before[name]
            if grown > limit:
                found.append(f"{name} grew by {grown // MiB} MiB; the limit is {limit // MiB} MiB")
        return found


def resident_bytes(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0


def unforeseen_in_logs(cluster: StandaloneProcess) -> list[str]:
    """Lines of the services' logs that tell of what nobody foresaw: some of each log, and their count."""
    found = []
    logs = sorted((cluster.folder / "data" / "logs").glob("*.log"))
    for log in (cluster.log_file, *logs):
        with log.open(errors="replace") as file:
            lines = list(unforeseen_lines(file))
        if lines:
            shown = "; ".join(line[:300] for line in lines[:log_lines_shown])
            found.append(f"{log.name}: {len(lines)} lines of what nobody foresaw: {shown}")
    return found


def unforeseen_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines that tell of what nobody foresaw."""
    return (line.rstrip() for line in lines if _UNFORESEEN.search(line))
