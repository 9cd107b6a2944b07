"""Kills one of two controllers and one of two segment stores in turn, under load, and counts what clients notice."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from tests.drills.store.audit import Tally
from tests.drills.store.load import SCOPE, Load, Worker, recovery_time_max_s
from tests.support.eventually import eventually_blocking

VICTIMS: Final = ("controller", "segment-store-0", "controller-1", "segment-store-1")
restart_time_max_s: Final = 90.0
pause_max_s: Final = 2.0
"""The longest time of undisturbed load before a kill."""
port_time_max_s: Final = 1.0


class Administrator(Worker):
    """Makes streams and deletes them again, one after the other."""

    def __init__(self, name: str, controller_uri: str) -> None:
        super().__init__(name, controller_uri)
        self._next = 0
        self.rounds: list[tuple[float, float]] = []
        """Begin and end of each stream's life, as ``time.monotonic``."""

    def work(self, client: StreamClient) -> None:
        while not self.stopping.is_set():
            stream, self._next = f"{self.name}-{self._next}", self._next + 1
            begun_s = time.monotonic()
            client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(2)))
            client.controller.seal_stream(SCOPE, stream)
            client.controller.delete_stream(SCOPE, stream)
            self.rounds.append((begun_s, time.monotonic()))


class FailoverLoad(Load):
    """Writers, transactions and readers of one stream, and an administrator beside them."""

    def __init__(self, controller_uri: str) -> None:
        super().__init__(controller_uri)
        self.administrator = Administrator("short-lived", controller_uri)
        self.workers.append(self.administrator)

    def first_round(self, since_s: float) -> float:
        """Seconds from ``since_s`` to the end of the first life of a stream that began after it; waits for it."""

        def ended() -> list[float]:
            return [end_s - since_s for begun_s, end_s in list(self.administrator.rounds) if begun_s >= since_s][:1]

        def has_ended() -> bool:
            self.check()
            return bool(ended())

        eventually_blocking(has_ended, "the life of a stream after a kill", recovery_time_max_s)
        return ended()[0]

    @property
    def errors(self) -> list[str]:
        """The errors that clients raised, their own retries being over."""
        return [f"{worker.name}: {error}" for worker in self.workers for error in worker.errors]


@dataclass
class FailoverResult:
    """One run. By victim and kill: seconds until every writer was acknowledged again, and until a stream was made,
    sealed and deleted."""

    acks_s: dict[str, list[float]] = field(default_factory=lambda: {victim: [] for victim in VICTIMS})
    rounds_s: dict[str, list[float]] = field(default_factory=lambda: {victim: [] for victim in VICTIMS})
    errors: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    transactions: int = 0
    streams: int = 0

    @property
    def kills(self) -> int:
        return sum(map(len, self.rounds_s.values()))

    @property
    def good(self) -> bool:
        return self.tally.good and not self.errors


def run(folder: Path, kills: int, duration_s: float, seed: int, tell: Callable[[str], None]) -> FailoverResult:
    """Kill for ``duration_s``, and ``kills`` times at least; then stop the load and count."""
    result, chooser = FailoverResult(), random.Random(seed)
    with StandaloneProcess(folder, controllers=2, segment_stores=2) as cluster:
        try:
            load = FailoverLoad(cluster.controller_uri)
            load.start()
            load.first_acks(time.monotonic())
            end_s = time.monotonic() + duration_s
            for number in itertools.count():
                if number >= kills and time.monotonic() >= end_s:
                    break
                time.sleep(chooser.random() * pause_max_s)
                _kill(cluster, load, VICTIMS[number % len(VICTIMS)], result, tell)
            load.stop()
            result.errors, result.tally = load.errors, load.audit()
            result.transactions = len(load.transactions.promises.committed)
            result.streams = len(load.administrator.rounds)
        except BaseException:
            tell(cluster.log_tail())
            raise
    return result


def _kill(
    cluster: StandaloneProcess, load: FailoverLoad, victim: str, result: FailoverResult, tell: Callable[[str], None]
) -> None:
    """Kill a process, and wait until all clients have an answer again and it serves again."""
    killed_s, pid = time.monotonic(), cluster.kill(victim)
    acks_s = load.first_acks(killed_s)
    round_s = load.first_round(killed_s)
    result.acks_s[victim].extend(acks_s)
    result.rounds_s[victim].append(round_s)
    tell(
        f"{victim}: writers after {max(acks_s):.2f} s, administration after {round_s:.2f} s, {len(load.errors)} errors"
    )
    cluster.wait_restarted(victim, pid, restart_time_max_s)
    kind, _, number = victim.rpartition("-")
    first = "segment_store_port" if kind == "segment-store" else "controller_port"
    port = int(str(cluster.options[first])) + (int(number) if number.isdigit() else 0)
    eventually_blocking(lambda: _is_open(port), f"an open port of {victim}", restart_time_max_s)


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), port_time_max_s).close()
    except OSError:
        return False
    return True
