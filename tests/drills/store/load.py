"""Writes and reads a stream from threads while its cluster is hurt."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_streams.batch.events import read_events, read_segment
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from tests.drills.store.audit import Contents, EventId, Promises, Tally, audit
from tests.support.eventually import eventually_blocking

SCOPE: Final = "drill"
STREAM: Final = "events"
segments: Final = 4
writers: Final = 3
readers: Final = 2
keys_per_writer: Final = 5
events_per_flush: Final = 10
pause_s: Final = 0.02
"""Between two flushes of a writer, if nothing else is said, and two looks of a reader: faults are to be met."""
transaction_pause_s: Final = 0.2
recovery_time_max_s: Final = 120.0


class Worker(threading.Thread):
    """A client that goes on until it is stopped; errors of a call are counted, and the call is made again."""

    def __init__(self, name: str, controller_uri: str) -> None:
        super().__init__(name=name, daemon=True)
        self._uri = controller_uri
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.broken: BaseException | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with StreamClient(self._uri) as client:
                    self.work(client)
            except PravegaError as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                self.stopping.wait(pause_s)
            except BaseException as error:
                self.broken = error
                return

    def work(self, client: StreamClient) -> None:
        """Work until ``stopping``."""
        raise NotImplementedError


class Writer(Worker):
    """Writes numbered events under its own keys, and flushes them in groups."""

    def __init__(self, name: str, controller_uri: str) -> None:
        super().__init__(name, controller_uri)
        self.promises = Promises(name)
        self.pause_s = pause_s
        """Between two flushes. May be changed at any time."""
        self._next = 0
        self.flushes: list[tuple[float, float]] = []
        """Begin and end of each flush that was acknowledged, as ``time.monotonic``."""

    def work(self, client: StreamClient) -> None:
        writer = EventWriter(client, SCOPE, STREAM)
        while not self.stopping.is_set():
            group = [
                EventId(self.name, f"{self.name}-{number % keys_per_writer}", number)
                for number in range(self._next, self._next + events_per_flush)
            ]
            self._next += events_per_flush
            self.promises.written.update(group)
            begun_s = time.monotonic()
            for event in group:
                writer.write(event.encode(), event.key)
            writer.flush()
            self.flushes.append((begun_s, time.monotonic()))
            self.promises.acked.update(group)
            self.stopping.wait(self.pause_s)
        writer.close()


class TransactionWriter(Worker):
    """Commits one transaction after the other."""

    def __init__(self, name: str, controller_uri: str) -> None:
        super().__init__(name, controller_uri)
        self.promises = Promises(name)
        self._next = 0

    def work(self, client: StreamClient) -> None:
        transactions = TransactionalWriter(client, SCOPE, STREAM)
        while not self.stopping.is_set():
            number, self._next = self._next, self._next + 1
            first = number * events_per_flush
            group = {
                EventId(self.name, f"{self.name}-{one % keys_per_writer}", one, number)
                for one in range(first, first + events_per_flush)
            }
            transaction = transactions.begin()
            for event in sorted(group, key=lambda event: event.number):
                transaction.write(event.encode(), event.key)
            self.promises.written |= group
            self.promises.transactions[number] = group
            transaction.commit()
            self.promises.committed.add(number)
            self.stopping.wait(transaction_pause_s)


class Reader(Worker):
    """Follows all segments, and keeps what it saw."""

    def __init__(self, name: str, controller_uri: str) -> None:
        super().__init__(name, controller_uri)
        self.seen: dict[int, list[bytes]] = defaultdict(list)
        self._positions: dict[int, int] = defaultdict(int)

    def work(self, client: StreamClient) -> None:
        while not self.stopping.is_set():
            for segment_id, end in client.tail_cut(SCOPE, STREAM).items():
                name = segment_name(SCOPE, STREAM, segment_id)
                start = self._positions[segment_id]
                if end > start:
                    for event in read_segment(client, name, segment_id, start, end):
                        self.seen[segment_id].append(event.data)
                        self._positions[segment_id] = event.offset + len(event.data) + event_header_bytes
            self.stopping.wait(pause_s)


event_header_bytes: Final = 8


class Load:
    """All clients of a run."""

    def __init__(self, controller_uri: str, *, writers: int = writers, readers: int = readers) -> None:
        self._uri = controller_uri
        with StreamClient(controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(segments)))
        self.writers = [Writer(f"w{number}", controller_uri) for number in range(writers)]
        self.transactions = TransactionWriter("t", controller_uri)
        self.readers = [Reader(f"r{number}", controller_uri) for number in range(readers)]
        self.workers: list[Worker] = [*self.writers, self.transactions, *self.readers]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def first_acks(self, since_s: float, look: Callable[[], None] = lambda: None) -> list[float]:
        """Seconds from ``since_s`` to the end of each writer's first flush that began after it; waits for them, and
        ``look`` may end the wait with an error."""

        def answered(writer: Writer) -> list[float]:
            return [end_s - since_s for begun_s, end_s in list(writer.flushes) if begun_s >= since_s][:1]

        def all_answered() -> bool:
            self.check()
            look()
            return all(answered(writer) for writer in self.writers)

        eventually_blocking(all_answered, "an acknowledgement of every writer after the fault", recovery_time_max_s)
        return [answered(writer)[0] for writer in self.writers]

    def check(self) -> None:
        """Fails if a worker ended by anything but an error that a client may see."""
        for worker in self.workers:
            if worker.broken is not None:
                raise AssertionError(f"{worker.name} broke") from worker.broken

    def stop(self) -> None:
        for worker in self.workers:
            worker.stopping.set()
        for worker in self.workers:
            worker.join(recovery_time_max_s)
            if worker.is_alive():
                raise AssertionError(f"{worker.name} does not end")
        self.check()

    def audit(self) -> Tally:
        """Reads the whole stream and compares; the workers are stopped."""
        contents: dict[int, list[bytes]] = defaultdict(list)
        with StreamClient(self._uri) as client:
            for event in read_events(client, SCOPE, STREAM):
                contents[event.segment_id].append(event.data)
        seen: list[Contents] = [reader.seen for reader in self.readers]
        return audit(contents, [*(writer.promises for writer in self.writers), self.transactions.promises], seen)
