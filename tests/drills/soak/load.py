"""Makes and ends records of every kind of a cluster, a little of each at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.invariants import check
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import SetMember, SetState, Sink
from pravega_streams.event.transaction import Transaction, TransactionalWriter
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.key_value_table import CompositeKey
from segment_service.store import routes_cached_max
from tests.support.eventually import eventually_blocking

SCOPE: Final = "soak"
STREAM: Final = "events"
TABLE: Final = "table"
GROUP: Final = "steady"
retained_bytes: Final = 200_000
event_bytes: Final = 1_000
events_per_round: Final = 10
lease_ms: Final = 30_000
refresh_ms: Final = 500
table_keys: Final = 20
"""Keys that are put and removed in turn, so that the table's contents stay the same."""
slice_time_s: Final = 1.0
batches_per_sink: Final = 5
"""After so many batches the next query has its turn, and the sink starts over (``pravega-spark sink forget``)."""
queries: Final = 4
"""Records of sinks are kept for days, also of those that start over: so the drill has few."""
names_per_call: Final = 4_096
absent_number_min: Final = 1_000
"""From this number on no segment is there: a stream's first segments have the lowest."""
finish_time_max_s: Final = 30.0
stop_time_max_s: Final = 120.0
CONFIGURATION: Final = StreamConfiguration(ScalingPolicy.fixed(2), RetentionPolicy.by_size(retained_bytes))
HALVES: Final = ((0.0, 0.5), (0.5, 1.0))

Round = Callable[[StreamManager, int], None]


def write_events(manager: StreamManager, number: int) -> None:
    with manager.create_writer(SCOPE, STREAM) as writer:
        for index in range(events_per_round):
            writer.write(bytes(event_bytes), f"{number}-{index}")


def end_transactions(manager: StreamManager, number: int) -> None:
    """Commit one and abort one; every tenth is left to its lease."""
    transactions = TransactionalWriter(manager.client, SCOPE, STREAM, lease_ms)
    for end in ("commit", "abort", *(("leave",) if number % 10 == 0 else ())):
        transaction = transactions.begin()
        transaction.write(bytes(event_bytes), f"{number}")
        if end == "commit":
            transaction.commit()
        elif end == "abort":
            transaction.abort()


def live_and_die(manager: StreamManager, number: int) -> None:
    """Make a stream, write, scale, seal and delete it; every other one has been read by a group of its own."""
    stream = f"short-{number}"
    manager.create_stream(SCOPE, stream, CONFIGURATION)
    with manager.create_writer(SCOPE, stream) as writer:
        writer.write(bytes(event_bytes), "key")
    replace_segments(manager, stream)
    if number % 2:
        group = manager.create_reader_group(SCOPE, f"group-{number}", [stream], refresh_time_ms=refresh_ms)
        with group.create_reader("reader") as reader:
            reader.get_segment_slice(slice_time_s)
        manager.delete_reader_group(SCOPE, f"group-{number}")
    manager.seal_stream(SCOPE, stream)
    manager.delete_stream(SCOPE, stream)


def replace_segments(manager: StreamManager, stream: str) -> None:
    controller = manager.client.controller
    present = [segment.segment_id for segment in controller.current_segments(SCOPE, stream)]
    controller.scale_stream(SCOPE, stream, present, HALVES)


def scale_steady_stream(manager: StreamManager, _: int) -> None:
    """The stream's old epochs are to go with the data that retention removes."""
    replace_segments(manager, STREAM)


def change_tables(manager: StreamManager, number: int) -> None:
    """Put and remove keys of a table that stays, and make and delete another one."""
    table, other = manager.open_key_value_table(SCOPE, TABLE), f"short-{number}"
    for index in range(table_keys):
        key = CompositeKey(f"{number % 100:04}{index:04}".encode())
        table.put(key, bytes(event_bytes))
        table.remove(key)
    manager.create_key_value_table(SCOPE, other, primary_key_length=8)
    manager.open_key_value_table(SCOPE, other).put(CompositeKey(b"12345678"), b"value")
    manager.delete_key_value_table(SCOPE, other)


def read_a_while(manager: StreamManager, number: int) -> None:
    """A reader of a group that stays comes, reads some slices, and goes."""
    group = manager.open_reader_group(SCOPE, GROUP)
    with group.create_reader(f"reader-{number}") as reader:
        for _ in range(4):
            piece = reader.get_segment_slice(slice_time_s)
            if piece is not None:
                for _event in piece:
                    pass
                reader.release_segment(piece)


def commit_a_batch(manager: StreamManager, number: int) -> None:
    """What the tasks and the driver of an exactly-once query ask of a controller."""
    client, turn, batch = manager.client, number // batches_per_sink, number % batches_per_sink
    query = turn % queries
    sink = Sink(f"query-{query}", f"{SCOPE}/{STREAM}")
    members = []
    for partition in range(2):
        begun = client.controller.create_transaction(SCOPE, STREAM, lease_ms)
        transaction = Transaction(client, SCOPE, STREAM, begun, lease_ms)
        transaction.write(bytes(event_bytes), f"{partition}")
        transaction.flush()
        members.append(SetMember(SCOPE, STREAM, begun.transaction_id, partition, 1, event_bytes))
    client.sets.register(sink, f"run-{turn}", batch, members)
    client.sets.commit(sink, f"run-{turn}", batch, members, len(members), len(members) * event_bytes)
    if batch == batches_per_sink - 1:
        eventually_blocking(
            lambda: client.sets.get(sink, batch)[0].state is SetState.FINISHED, "a finished batch", finish_time_max_s
        )
        client.sets.forget(sink)


def fill_names(manager: StreamManager) -> None:
    """Have stores remember as many names as they ever do, of segments that are not there: at the drill's pace it would
    take hours to come to that, and memory grow meanwhile."""
    for first in range(absent_number_min, routes_cached_max, names_per_call):
        found = manager.client.segment_infos(SCOPE, STREAM, range(first, first + names_per_call))
        check(not found, "segments were there whose names nobody had made up", segments=len(found))


ROUNDS: Final[dict[str, tuple[Round, float]]] = {
    "plain events": (write_events, 0.5),
    "transactions": (end_transactions, 1.0),
    "short streams": (live_and_die, 3.0),
    "scales": (scale_steady_stream, 5.0),
    "tables": (change_tables, 2.0),
    "readers": (read_a_while, 1.0),
    "batches of sinks": (commit_a_batch, 1.0),
}
"""What is done again and again, with the seconds between two rounds."""


class Repeater(threading.Thread):
    """Carries out one kind of rounds; errors of clients are kept, and the next round is carried out."""

    def __init__(self, name: str, controller_uri: str, carry_out: Round, pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self._uri, self._carry_out, self._pause_s = controller_uri, carry_out, pause_s
        self.stopping = threading.Event()
        self.rounds = 0
        self.errors: list[str] = []
        self.broken: BaseException | None = None

    def run(self) -> None:
        try:
            with StreamManager(self._uri) as manager:
                while not self.stopping.wait(self._pause_s):
                    try:
                        self._carry_out(manager, self.rounds)
                    except PravegaError as error:
                        self.errors.append(f"{type(error).__name__}: {error}")
                    self.rounds += 1
        except BaseException as error:
            self.broken = error


class SoakLoad:
    """All kinds of rounds beside each other, as long as the block lasts."""

    def __init__(self, controller_uri: str) -> None:
        with StreamManager(controller_uri) as manager:
            manager.create_scope(SCOPE)
            manager.create_stream(SCOPE, STREAM, CONFIGURATION)
            manager.create_key_value_table(SCOPE, TABLE, primary_key_length=8)
            manager.create_reader_group(SCOPE, GROUP, [STREAM], refresh_time_ms=refresh_ms)
            fill_names(manager)
        self.workers = [Repeater(name, controller_uri, *what) for name, what in ROUNDS.items()]

    def __enter__(self) -> SoakLoad:
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stopping.set()
        for worker in self.workers:
            worker.join(stop_time_max_s)

    def check(self) -> None:
        """Fails if a worker ended by anything but an error that a client may see."""
        for worker in self.workers:
            if worker.broken is not None:
                raise AssertionError(f"{worker.name} broke") from worker.broken
