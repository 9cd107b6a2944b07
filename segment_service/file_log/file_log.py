"""Implements ``DurableDataLog`` over append-only files of one machine."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from pravega_common.errors import Outcome, PravegaError, Unavailable, UnknownOutcome
from pravega_common.invariants import check, unreachable
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.checksums import checksum_of
from segment_service.contracts.data_log import LogAddress, LogEntry, Replication
from segment_service.file_log.container_files import ContainerFiles, FoundLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.file_log.found_log import read_found
from segment_service.file_log.plog_writer import DiskFull, Frame
from segment_service.plog.appends import fail_append, frame_bytes, frame_refusal, frames_pending_max

frames_per_write_max: Final = 64
"""Frames that one write and one sync make durable together."""
room_look_first_s: Final = 0.1
room_look_max_s: Final = 1.0
"""Pause between two looks at a disk that is full; it doubles up to the greatest one."""


@dataclass(slots=True)
class _Pending:
    frame: Frame
    future: asyncio.Future[LogAddress]
    number: int


class FileDataLog(Service):
    """One container's log in ``folder``. See ``DurableDataLog`` for the contract.

    All frames that came while one write was synced go into the next one. A write or sync that fails ends the log: a
    failed sync is never tried again, as the system may have dropped what it could not write.
    """

    def __init__(self, container_id: int, folder: FileLogFolder, clock: Clock | None = None) -> None:
        super().__init__(f"log-{container_id}")
        self._container_id = container_id
        self._folder = folder
        self._files: ContainerFiles = folder.container(container_id)
        self._clock = clock or SystemClock()
        self._found: FoundLog | None = None
        self._read_done = False
        self._queue: deque[_Pending] = deque()
        self._writing: list[_Pending] = []
        self._appended = 0
        self._urgent_below = 0
        """Frames with a lower number may take the space of the reserve."""
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._error: PravegaError | None = None

    @property
    def container_id(self) -> int:
        return self._container_id

    @property
    def epoch(self) -> int:
        return self._required().epoch

    async def initialize(self, epoch_min: int = 1) -> None:
        check(self._found is None and self._error is None, "the log was initialized twice", log=self.name)
        self._found = await self._folder.run(partial(self._files.take_over, epoch_min))
        await self.start()

    async def on_start(self) -> None:
        self.spawn(self._write(), "write")

    async def check_owner(self) -> None:
        await self._folder.run(partial(self._files.check_owner, self.epoch))

    async def read(self) -> AsyncIterator[LogEntry]:
        check(not self._read_done, "the log was read twice or after an append", log=self.name)
        self._read_done = True
        async for entry in read_found(self._required(), self._files, self._folder.run):
            yield entry

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        check(self._found is not None, "append before initialize", log=self.name)
        self._read_done = True
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        size = frame_bytes(frame)
        refusal = self._error or frame_refusal(size)
        if refusal is not None:
            future.set_exception(refusal)
            return future
        check(len(self._queue) + len(self._writing) < frames_pending_max, "too many frames in flight", log=self.name)
        entry = Frame(frame, size, checksum_of(frame) if checksum is None else checksum)
        self._queue.append(_Pending(entry, future, self._appended))
        self._appended += 1
        self._wake.set()
        return future

    @property
    def replication(self) -> Replication:
        return Replication()

    @property
    def groups(self) -> Set[str]:
        return frozenset()

    @property
    def failures_total(self) -> int:
        return 0  # the first one ends this log

    @property
    def is_full(self) -> bool:
        return self._full.is_set()

    async def wait_full(self) -> None:
        await self._full.wait()

    def relieve(self) -> None:
        self._urgent_below = self._appended

    async def truncate(self, up_to: LogAddress) -> None:
        if self._error is not None:
            raise self._error
        try:
            await self._folder.run(partial(self._files.truncate, self.epoch, up_to), overdue=UnknownOutcome)
        except UnknownOutcome as error:  # the state on disk is not known: so neither is what may be deleted
            self._end(error)
            self.fail(error)
            raise
        if not self.is_full:
            await self._folder.run(self._folder.restore_reserve)

    async def note_loss(self) -> None:
        """The state of the log, which ``close`` writes, says how much was acknowledged."""

    async def close(self) -> None:
        self._failure_callbacks.clear()
        await self.stop()

    async def on_stop(self) -> None:
        self._end(
            UnknownOutcome(f"container {self._container_id}: log closed before the append was acknowledged"),
            closed=True,
        )
        await self._idle.wait()  # a write that is under way has the callers' buffers; it ends in time or is overdue
        if self._found is not None:
            try:
                await self._folder.run(partial(self._files.close, self._found.epoch))
            except PravegaError as error:
                self.log.warning("the log was not closed cleanly", error=str(error))

    async def _write(self) -> None:
        pause_s = room_look_first_s
        while True:
            await self._wake.wait()
            try:
                await self._write_some()
                pause_s = room_look_first_s
            except DiskFull as error:
                if not self.is_full:
                    self.log.warning("the disk is full; appends wait for room", error=str(error))
                self._full.set()
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, room_look_max_s)
            except PravegaError as error:
                self.log.error("the log is over", error=str(error))
                self._end(error)
                self.fail(error)
                return

    async def _write_some(self) -> None:
        """Make the frames at the head of the queue durable and answer them; one at a time while the disk is full, and
        then in a new file, so that truncation can free the one before."""
        limit = 1 if self.is_full else frames_per_write_max
        batch = self._writing = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        self._idle.clear()
        addresses: list[LogAddress] = []
        try:
            addresses = await self._folder.run(partial(self._append, batch), overdue=UnknownOutcome)
            self._full.clear()
        except DiskFull:
            self._requeue(batch)
            raise
        finally:
            self._idle.set()
        for pending, address in zip(batch, addresses, strict=False):
            if not pending.future.done():
                pending.future.set_result(address)
        self._requeue(batch[len(addresses) :])

    def _requeue(self, batch: list[_Pending]) -> None:
        """Put what was not written back, unless the log has ended meanwhile."""
        self._writing = []
        if self._error is None:
            self._queue.extendleft(reversed(batch))
        if not self._queue:
            self._wake.clear()

    def _append(self, batch: list[_Pending]) -> list[LogAddress]:
        """Runs on a thread."""
        frames = [pending.frame for pending in batch]
        was_full = self.is_full
        try:
            return self._files.append(self.epoch, frames, new_file=was_full)
        except DiskFull:
            if batch[0].number >= self._urgent_below or not self._folder.release_reserve():
                raise
        return self._files.append(self.epoch, frames, new_file=was_full)

    def _end(self, error: PravegaError, *, closed: bool = False) -> None:
        """The log is over. What was being written gets the error; what waited was not done, unless nobody waits for it
        any more: then its outcome is left open."""
        if self._error is not None:
            return
        unknown = error.outcome is Outcome.UNKNOWN
        self._error = Unavailable(f"container {self._container_id}: the log is over: {error}") if unknown else error
        for pending in self._writing:
            fail_append(pending.future, error)
        for pending in self._queue:
            fail_append(pending.future, error if closed else self._error)
        self._writing = []
        self._queue.clear()

    def _required(self) -> FoundLog:
        return self._found or unreachable("the log was not initialized", log=self.name)
