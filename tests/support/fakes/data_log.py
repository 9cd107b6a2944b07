"""Keeps the Tier-1 log in memory: the fake of the Redis log.

Frames live in an ``InMemoryLogStore`` that outlives its logs, so that several ``InMemoryDataLog`` of one container
compete as processes would: the one with the highest epoch appends, every other is fenced. Faults are injected through
``InMemoryLogStore.faults``; nothing here sleeps or starts a task unless a delay is asked for.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption, Fenced, InvalidArgument, PravegaError, Unavailable, UnknownOutcome
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress, LogEntry, Replication
from segment_service.plog.appends import frame_refusal

room_look_s: Final = 0.005
"""Pause between two looks at a store that is full."""

plog_bytes_max: Final = 16 * 1024 * 1024
"""Bytes after which the fake moves on to the next plog number, as the real log does."""


class AppendFault(enum.Enum):
    """The effect of an injected fault on one append; every later append of that log fails too."""

    FAILED = "failed"
    """Not stored, ``Unavailable``."""
    UNKNOWN_STORED = "unknown_stored"
    """Stored, and the caller gets ``UnknownOutcome``."""
    UNKNOWN_LOST = "unknown_lost"
    """Not stored, and the caller gets ``UnknownOutcome``."""


class LogFaults:
    """Faults of one store. Every log of the store obeys them."""

    def __init__(self) -> None:
        self.append_delay_s = 0.0
        """Time between an append and its acknowledgement."""
        self.initialize_error: PravegaError | None = None
        """Raised once by the next ``initialize``."""
        self.truncate_error: PravegaError | None = None
        """Raised once by the next ``truncate``, before anything is recorded."""
        self.capacity_bytes = 0
        """Frames beyond this, over all logs, wait for room; 0 for no limit."""
        self._planned: dict[int, AppendFault] = {}
        self._held = False
        self._waiting: list[InMemoryDataLog] = []

    def plan_append(self, fault: AppendFault, nth: int = 1) -> None:
        """Let the ``nth`` append from now on (counting from 1, over all logs) end with ``fault``."""
        check(nth >= 1, "appends are counted from 1", nth=nth)
        self._planned[nth] = fault

    def hold(self) -> None:
        """Keep appends unanswered (neither stored nor refused) until ``release``."""
        self._held = True

    def release(self) -> None:
        self._held = False
        waiting, self._waiting = self._waiting, []
        for log in waiting:
            log.schedule()

    def holds(self, log: InMemoryDataLog) -> bool:
        """Whether appends are held now; the log is called again on ``release``."""
        if self._held:
            self._waiting.append(log)
        return self._held

    def next_append(self) -> AppendFault | None:
        """Count one append and say what happens to it."""
        due = self._planned.pop(1, None)
        self._planned = {nth - 1: fault for nth, fault in self._planned.items()}
        return due


@dataclass(slots=True)
class _ContainerLog:
    epoch: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    next_address: LogAddress = field(default_factory=lambda: LogAddress(0, 0))
    truncated_at: LogAddress = field(default_factory=lambda: LogAddress(0, 0))
    damaged: set[LogAddress] = field(default_factory=set)
    removed: int = 0
    """Number of the first frame in ``entries``."""


class InMemoryLogStore:
    """The logs of any number of containers, as the servers of a real log hold them."""

    def __init__(self, bytes_per_plog: int = plog_bytes_max) -> None:
        self.faults = LogFaults()
        self._bytes_per_plog = bytes_per_plog
        self._logs: dict[int, _ContainerLog] = {}
        self.loss_notes: dict[int, int] = {}
        """What ``note_loss`` noted, by container: frames."""
        self.are_notes_away = False

    def container(self, container_id: int) -> _ContainerLog:
        return self._logs.setdefault(container_id, _ContainerLog())

    def take_epoch(self, container_id: int, at_least: int = 1) -> int:
        """Give out the next epoch, fence all lower ones and start a new plog for the new owner."""
        log = self.container(container_id)
        log.epoch = max(log.epoch + 1, at_least)
        if log.next_address.offset > 0:
            log.next_address = LogAddress(log.next_address.plog_number + 1, 0)
        return log.epoch

    def store_frame(self, container_id: int, payload: bytes) -> LogAddress:
        log = self.container(container_id)
        address = log.next_address
        if address.offset > 0 and address.offset + len(payload) > self._bytes_per_plog:
            address = LogAddress(address.plog_number + 1, 0)
        log.entries.append(LogEntry(address, memoryview(payload)))
        log.next_address = LogAddress(address.plog_number, address.offset + len(payload))
        return address

    def has_room(self, size: int) -> bool:
        limit = self.faults.capacity_bytes
        used = sum(len(entry.payload) for log in self._logs.values() for entry in log.entries)
        return not limit or used + size <= limit

    def entries(self, container_id: int) -> list[LogEntry]:
        """All stored frames of a container from its truncation point, for assertions."""
        log = self.container(container_id)
        return [entry for entry in log.entries if entry.address >= log.truncated_at]

    def backup(self, container_id: int) -> _ContainerLog:
        """A copy of a container's log as it is now, epoch and all."""
        log = self.container(container_id)
        return replace(log, entries=list(log.entries), damaged=set(log.damaged))

    def restore(self, container_id: int, log: _ContainerLog | None = None) -> None:
        """Let a copy take the place of a container's log; without one, an empty log as after the loss of a server."""
        self._logs[container_id] = _ContainerLog() if log is None else replace(log, entries=list(log.entries))

    def damage(self, container_id: int, address: LogAddress) -> None:
        """Make the frame at ``address`` fail its checksum when it is read."""
        self.container(container_id).damaged.add(address)


class InMemoryDataLog:
    """``DurableDataLog`` over an ``InMemoryLogStore``."""

    def __init__(self, container_id: int, store: InMemoryLogStore) -> None:
        self.replication_now = Replication()
        """The answer of ``replication``; a test sets it."""
        self.groups: Set[str] = frozenset()
        self._container_id = container_id
        self._store = store
        self._epoch = 0
        self._error: PravegaError | None = None
        self._read_done = False
        self._pending: deque[tuple[bytes, asyncio.Future[LogAddress]]] = deque()
        self._scheduled: asyncio.Handle | None = None
        self._failure_callbacks: list[Callable[[BaseException], None]] = []
        self._full = asyncio.Event()
        self._urgent = 0
        self._acked_frames = 0

    @property
    def replication(self) -> Replication:
        return self.replication_now

    @property
    def failures_total(self) -> int:
        return 0

    @property
    def is_full(self) -> bool:
        return self._full.is_set()

    async def wait_full(self) -> None:
        await self._full.wait()

    def relieve(self) -> None:
        self._urgent = len(self._pending)

    @property
    def container_id(self) -> int:
        return self._container_id

    @property
    def epoch(self) -> int:
        check(self._epoch > 0, "the log was not initialized", container_id=self._container_id)
        return self._epoch

    async def initialize(self, epoch_min: int = 1) -> None:
        check(self._epoch == 0, "the log was initialized twice", container_id=self._container_id)
        error, self._store.faults.initialize_error = self._store.faults.initialize_error, None
        if error is not None:
            raise error
        noted, self._acked_frames = self._store.loss_notes.get(self._container_id, 0), self._stored_frames
        if self._acked_frames < noted:
            raise DataCorruption(
                f"container {self._container_id}: the log ends at frame {self._acked_frames}, but {noted} frames had "
                "been acknowledged before some were found lost"
            )
        self._epoch = self._store.take_epoch(self._container_id, epoch_min)

    async def check_owner(self) -> None:
        self._raise_if_over()

    async def read(self) -> AsyncIterator[LogEntry]:
        check(not self._read_done, "the log was read twice or after an append", container_id=self._container_id)
        self._read_done = True
        damaged = self._store.container(self._container_id).damaged
        for entry in self._store.entries(self._container_id):
            self._raise_if_over()
            if entry.address in damaged:
                raise DataCorruption(f"container {self._container_id}: frame at {entry.address} fails its checksum")
            yield entry

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        check(self._epoch > 0, "append before initialize", container_id=self._container_id)
        self._read_done = True
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        payload = b"".join(frame)
        check(checksum in (None, crc32c(payload)), "a frame has another checksum", checksum=checksum)
        refusal = self._error or frame_refusal(len(payload))
        if refusal is not None:
            future.set_exception(refusal)
            return future
        self._pending.append((payload, future))
        self.schedule()
        return future

    async def truncate(self, up_to: LogAddress) -> None:
        self._raise_if_over()
        error, self._store.faults.truncate_error = self._store.faults.truncate_error, None
        if error is not None:
            raise error
        log = self._store.container(self._container_id)
        if not any(entry.address == up_to for entry in self._store.entries(self._container_id)):
            raise InvalidArgument(f"container {self._container_id}: no frame begins at {up_to}; cannot truncate there")
        log.truncated_at = up_to
        kept = [entry for entry in log.entries if entry.address.plog_number >= up_to.plog_number]
        log.removed += len(log.entries) - len(kept)
        log.entries = kept

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        self._failure_callbacks.append(callback)

    async def note_loss(self) -> None:
        if self._store.are_notes_away:
            raise Unavailable(f"container {self._container_id}: injected: nothing can be noted")
        self._store.loss_notes[self._container_id] = self._acked_frames

    async def close(self) -> None:
        self._failure_callbacks.clear()
        self._end(UnknownOutcome(f"container {self._container_id}: log closed before the append was acknowledged"))
        self._error = Unavailable(f"container {self._container_id}: the log is closed")

    @property
    def pending_frames(self) -> int:
        """Appends that are not answered."""
        return len(self._pending)

    def schedule(self) -> None:
        """Answer what is pending on a later turn of the loop; called by ``append`` and by ``LogFaults.release``."""
        if self._scheduled is None and self._pending:
            loop = asyncio.get_running_loop()
            delay_s = self._store.faults.append_delay_s
            self._scheduled = loop.call_later(delay_s, self._drain) if delay_s > 0 else loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._scheduled = None
        if not self._pending or self._store.faults.holds(self):
            return
        while self._pending and self._error is None:
            if not self._urgent and not self._superseded and not self._store.has_room(len(self._pending[0][0])):
                self._full.set()
                self._scheduled = asyncio.get_running_loop().call_later(room_look_s, self._drain)
                return
            self._full.clear()
            self._urgent = max(0, self._urgent - 1)
            self._answer_one()
            if self._store.faults.append_delay_s > 0:
                self.schedule()
                return

    def _answer_one(self) -> None:
        """Store or refuse the oldest pending append."""
        where = f"container {self._container_id}"
        if self._superseded:
            self._end(Fenced(f"{where}: epoch {self._epoch} was fenced"))
            return
        fault = self._store.faults.next_append()
        if fault is AppendFault.FAILED:
            self._end(Unavailable(f"{where}: injected failure"))
            return
        if fault is AppendFault.UNKNOWN_LOST:
            self._end(UnknownOutcome(f"{where}: injected loss of the frame and its answer"))
            return
        payload, future = self._pending[0]
        address = self._store.store_frame(self._container_id, payload)
        if fault is AppendFault.UNKNOWN_STORED:
            self._end(UnknownOutcome(f"{where}: injected loss of the answer"))
            return
        self._pending.popleft()
        self._acked_frames = self._stored_frames
        if not future.done():
            future.set_result(address)

    @property
    def _stored_frames(self) -> int:
        log = self._store.container(self._container_id)
        return log.removed + len(log.entries)

    @property
    def _superseded(self) -> bool:
        return self._store.container(self._container_id).epoch != self._epoch

    def _raise_if_over(self) -> None:
        check(self._epoch > 0, "the log was not initialized", container_id=self._container_id)
        if self._error is None and self._superseded:
            self._end(Fenced(f"container {self._container_id}: epoch {self._epoch} was fenced"))
        if self._error is not None:
            raise self._error

    def _end(self, error: PravegaError) -> None:
        """The log is over: everything pending and everything later fails."""
        if self._error is None:
            self._error = error
        while self._pending:
            _, future = self._pending.popleft()
            if not future.done():
                future.set_exception(self._error)
                future.exception()  # marks it retrieved: an abandoned append is not worth a warning
        for callback in self._failure_callbacks:
            callback(self._error)
