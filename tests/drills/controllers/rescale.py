"""Scales a stream up and down under writers, readers and open transactions, and counts what came of them."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.transaction import Transaction, TransactionalWriter
from pravega_streams.stream_manager import StreamManager
from tests.drills.store.audit import EventId, Promises, Tally, audit
from tests.drills.store.load import SCOPE, STREAM, Worker, Writer, recovery_time_max_s
from tests.support.eventually import eventually_blocking
from tests.support.quick_scaling import QUICK_SCALING

GROUP: Final = "followers"
writers: Final = 3
readers: Final = 2
scales_across: Final = 10
"""Scale events that each transaction stays open across."""
events_per_transaction: Final = 6
segments_min: Final = 1
segments_max: Final = 8
lease_ms: Final = 600_000
target_rate: Final = 60
"""Events a second of a segment. The writers make 300 when they are busy, and 10 when they are not."""
busy_pause_s: Final = 0.1
idle_pause_s: Final = 3.0
never: Final = 1_000_000
"""A target rate that no segment gets, in a run by hand."""
scale_time_max_s: Final = 180.0
slice_time_s: Final = 0.2


class Follower(Worker):
    """A reader of the group; what all followers read is one list, in the order of their reading."""

    def __init__(self, name: str, controller_uri: str, seen: list[bytes], lock: threading.Lock) -> None:
        super().__init__(name, controller_uri)
        self._seen = seen
        self._lock = lock

    def work(self, client: StreamClient) -> None:
        with StreamManager(self._uri) as manager:
            reader = manager.open_reader_group(SCOPE, GROUP).create_reader(self.name)
            while not self.stopping.is_set():
                piece = reader.get_segment_slice(slice_time_s)
                if piece is not None:
                    data = [bytes(event.data) for event in piece]
                    with self._lock:
                        self._seen.extend(data)
                    reader.release_segment(piece)
            reader.reader_offline()


class OpenTransactions:
    """Transactions that are begun before a scale event and committed ten events later, keys of their own each."""

    def __init__(self, client: StreamClient) -> None:
        self.promises = Promises("t")
        self.across: list[int] = []
        """The scale events that each committed transaction was open across."""
        self._writer = TransactionalWriter(client, SCOPE, STREAM, lease_ms)
        self._open: deque[tuple[int, int, Transaction]] = deque()
        self._numbers = itertools.count()

    def begin(self, scales: int) -> None:
        number = next(self._numbers)
        transaction = self._writer.begin()
        first = number * events_per_transaction
        group = {EventId("t", f"t-{number}", one, number) for one in range(first, first + events_per_transaction)}
        for event in sorted(group, key=lambda event: event.number):
            transaction.write(event.encode(), event.key)
        self.promises.written |= group
        self.promises.transactions[number] = group
        self._open.append((scales, number, transaction))

    def commit_due(self, scales: int, across: int = scales_across) -> None:
        """Commit those that have been open across enough scale events."""
        while self._open and scales - self._open[0][0] >= across:
            begun, number, transaction = self._open.popleft()
            transaction.commit()
            self.promises.committed.add(number)
            self.across.append(scales - begun)

    def end(self, scales: int) -> None:
        """Commit those that are left."""
        self.commit_due(scales, 0)


class Scene:
    """The stream of a run with its clients."""

    def __init__(self, controller_uri: str, client: StreamClient, rate: int) -> None:
        self._client = client
        client.controller.create_scope(SCOPE)
        policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, rate, 2, segments_min)
        client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(policy))
        with StreamManager(controller_uri) as manager:
            manager.create_reader_group(SCOPE, GROUP, [STREAM], refresh_time_ms=200)
        self.transactions = OpenTransactions(client)
        self.seen: list[bytes] = []
        lock = threading.Lock()
        self.writers = [Writer(f"w{number}", controller_uri) for number in range(writers)]
        self.readers = [Follower(f"r{number}", controller_uri, self.seen, lock) for number in range(readers)]
        self.workers: list[Worker] = [*self.writers, *self.readers]

    @property
    def promises(self) -> list[Promises]:
        return [self.transactions.promises, *(writer.promises for writer in self.writers)]

    def layout(self) -> list[SegmentRange]:
        """The open segments, by key."""
        return self._client.controller.current_segments(SCOPE, STREAM)

    def pace(self, pause_s: float) -> None:
        for writer in self.writers:
            writer.pause_s = pause_s

    def check(self) -> None:
        """Fails if a worker broke."""
        for worker in self.workers:
            if worker.broken is not None:
                raise AssertionError(f"{worker.name} broke") from worker.broken

    def end(self) -> None:
        """Stop the writers, and the readers once they have read everything."""
        _stop(self.writers)
        written = sum(len(promise.written) for promise in self.promises)

        def have_read() -> bool:
            self.check()
            return len(self.seen) >= written

        eventually_blocking(have_read, "the readers at the end of the stream", recovery_time_max_s)
        _stop(self.readers)
        self.check()

    def stored(self) -> dict[int, list[bytes]]:
        """The events of each segment of the stream."""
        contents: dict[int, list[bytes]] = defaultdict(list)
        for event in read_events(self._client, SCOPE, STREAM):
            contents[event.segment_id].append(event.data)
        return contents


def _stop(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(recovery_time_max_s)
        if worker.is_alive():
            raise AssertionError(f"{worker.name} does not end")


Scale = Callable[[Scene, Sequence[SegmentRange]], None]
"""Brings a scale event about and waits for it, from the segments that there are."""


def by_hand(client: StreamClient, chooser: random.Random) -> Scale:
    """Split a segment, or merge two neighbours, as chance has it."""

    def scale(scene: Scene, layout: Sequence[SegmentRange]) -> None:
        grows = len(layout) < segments_max and (len(layout) == segments_min or chooser.random() < 0.5)
        at = chooser.randrange(len(layout) if grows else len(layout) - 1)
        low, high = layout[at].key_low, layout[at if grows else at + 1].key_high
        sealed = [segment.segment_id for segment in layout[at : at + (1 if grows else 2)]]
        middle = (low + high) / 2
        client.controller.scale_stream(
            SCOPE, STREAM, sealed, [(low, middle), (middle, high)] if grows else [(low, high)]
        )

    return scale


def by_load() -> Scale:
    """Write much until there are many segments, then little until there is one."""
    is_busy = True

    def scale(scene: Scene, layout: Sequence[SegmentRange]) -> None:
        nonlocal is_busy
        if len(layout) <= segments_min:
            is_busy = True
        elif len(layout) >= segments_max // 2:
            is_busy = False
        scene.pace(busy_pause_s if is_busy else idle_pause_s)
        before = _ranges(layout)

        def has_changed() -> bool:
            scene.check()
            return _ranges(scene.layout()) != before

        eventually_blocking(has_changed, "a scale by load", scale_time_max_s)

    return scale


def _ranges(layout: Sequence[SegmentRange]) -> list[tuple[float, float]]:
    """A rolling transaction gives a stream other segments of the same ranges: that is no scale."""
    return [(segment.key_low, segment.key_high) for segment in layout]


@dataclass
class RescaleResult:
    """One run: what the stream holds in the end, and what its readers read meanwhile, compared with what was
    written."""

    stored: Tally = field(default_factory=Tally)
    read: Tally = field(default_factory=Tally)
    layouts: list[int] = field(default_factory=list)
    """Segments behind each scale event."""
    across: list[int] = field(default_factory=list)
    """Scale events that each committed transaction was open across."""
    epochs: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.stored.good and self.read.good and not self.errors


def run(folder: Path, scales: int, seed: int, *, is_by_load: bool, tell: Callable[[str], None]) -> RescaleResult:
    """Let a stream scale this often under its clients, then stop them and count."""
    result = RescaleResult()
    cluster = StandaloneProcess(folder, controllers=2, segment_stores=2)
    cluster.start(QUICK_SCALING if is_by_load else {})
    try:
        with StreamClient(cluster.controller_uri) as client:
            scene = Scene(cluster.controller_uri, client, target_rate if is_by_load else never)
            for worker in scene.workers:
                worker.start()
            _scale(scene, by_load() if is_by_load else by_hand(client, random.Random(seed)), scales, result, tell)
            scene.end()
            result.stored = audit(scene.stored(), scene.promises, [])
            result.read = audit({0: scene.seen}, scene.promises, [])
            result.errors = [f"{worker.name}: {error}" for worker in scene.workers for error in worker.errors]
            result.across = scene.transactions.across
            result.epochs = max(segment.segment_id >> 32 for segment in scene.layout())
    except BaseException:
        tell(cluster.log_tail())
        raise
    finally:
        cluster.stop()
    return result


def _scale(scene: Scene, scale: Scale, scales: int, result: RescaleResult, tell: Callable[[str], None]) -> None:
    layout = scene.layout()
    for number in range(scales):
        scene.check()
        scene.transactions.begin(number)
        scale(scene, layout)
        scene.transactions.commit_due(number + 1)
        layout = scene.layout()
        result.layouts.append(len(layout))
        tell(f"scale {number + 1}: {len(layout)} segments")
    scene.transactions.end(scales)
