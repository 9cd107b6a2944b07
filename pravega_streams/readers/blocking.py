"""Offers reader groups to code without an event loop: a thread runs one for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from pravega_common.errors import InvalidArgument, PravegaError, UnknownOutcome
from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut
from pravega_streams.connection.own_process import OwnProcess
from pravega_streams.readers.event_reader import EventReader, slice_time_default_s
from pravega_streams.readers.group_state import GroupConfiguration, Positions, StreamName
from pravega_streams.readers.reader_group import ReaderGroup, checkpoint_time_default_s
from pravega_streams.readers.slices import ReadEvent, SegmentSlice

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)


class LoopThread:
    """An event loop in a thread of its own, begun with the first call. ``InvalidArgument`` once it is closed, and in a
    process that is forked, which has no such thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        """Python 3.14 may leave a lock held by a thread that is interrupted; this one the thread may take again."""
        self._process: OwnProcess | None = None
        """The one that has the thread."""
        self._is_closed = False
        self._is_ending = False

    def run(self, work: Coroutine[Any, Any, T], *, changes: bool = False) -> T:
        """Run a coroutine in the loop, wait for it and return its result; an interrupted wait cancels it.

        What closing ends is ``UnknownOutcome`` if it ``changes`` something, else ``InvalidArgument``.
        """
        try:
            self._check_process()
            with self._lock:  # What is given to the loop before it is closed is cancelled then, and comes to an end.
                self._check_open()
                future = asyncio.run_coroutine_threadsafe(work, self._running())
        except InvalidArgument:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            if self._is_closed and changes:
                raise UnknownOutcome(
                    "the manager was closed before an answer came, and the call may have been done"
                ) from None
            self._check_open()
            raise
        except BaseException:
            future.cancel()
            raise

    def _check_process(self) -> None:
        """Refuse to wait for a thread, or for the lock of one, that a forked process has not."""
        if self._process is not None:
            self._process.check("a reader or group")

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidArgument("the manager of this reader or group is closed; make another one")

    def close(self) -> None:
        """Stop the loop; what still runs in it is cancelled, and refused to the threads that wait for it."""
        self._check_process()
        with self._lock:
            self._is_closed = True  # Before calls end for it: each asks then.
            if self._loop is not None and not self._is_ending:
                asyncio.run_coroutine_threadsafe(_end(), self._loop)
                self._is_ending = True
            thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            if self._loop is not None:
                self._loop.close()
            self._loop = self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="pravega-readers", daemon=True)
            self._thread.start()
            self._process = OwnProcess()
        return self._loop


async def _end() -> None:
    """Stop the loop in which it runs, once nothing else does."""
    await _cancel_others()
    asyncio.get_running_loop().stop()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class BlockingEventReader:
    """An ``EventReader`` whose calls wait. Not for several threads at a time: ``InvalidArgument`` for events that one
    asks for while another one waits for some. After an interrupt (Ctrl-C) the call may be repeated."""

    def __init__(self, reader: EventReader, loop: LoopThread) -> None:
        self._reader = reader
        self._loop = loop
        self._turn = asyncio.Lock()
        """Held by a call for a slice, which goes on for a while if an interrupt ends the wait for it."""
        self._fetching = threading.RLock()
        """Held by the thread that waits for a slice. Python 3.14 may leave it held by one that is interrupted, which
        may take it again."""
        self._untaken: SegmentSlice | None = None
        """The slice that came last, as long as the caller may not have got it."""

    def __enter__(self) -> BlockingEventReader:
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._reader.__aexit__(*error), changes=True)

    def __iter__(self) -> Iterator[ReadEvent]:
        return self.events()

    @property
    def reader_id(self) -> str:
        return self._reader.reader_id

    @property
    def is_finished(self) -> bool:
        return self._reader.is_finished

    def events(self) -> Iterator[ReadEvent]:
        """All events of this reader's segments, until the group has read all that it is to read."""
        while not self.is_finished:
            piece = self._fetch(slice_time_default_s)
            for event in self._reader.in_turn(piece) if piece is not None else ():
                self._untaken = None
                yield event

    def get_segment_slice(self, timeout_s: float = slice_time_default_s) -> SegmentSlice | None:
        """Some events of one segment; None if there were none in time. Give it back with ``release_segment``."""
        piece = self._fetch(timeout_s)
        self._untaken = None
        return piece

    def _fetch(self, timeout_s: float) -> SegmentSlice | None:
        """A slice, which stays ``_untaken``. One that nobody has got goes back first: its segment would stand still."""

        async def fetch() -> SegmentSlice | None:
            async with self._turn:
                untaken, self._untaken = self._untaken, None
                if untaken is not None:
                    self._reader.release_segment(untaken)
                self._untaken = await self._reader.get_segment_slice(timeout_s)
                return self._untaken

        if not self._fetching.acquire(blocking=False):
            raise InvalidArgument(
                f"another thread waits for events of reader {self.reader_id}; give each thread a reader of its own "
                "(create_reader)"
            )
        try:
            return self._loop.run(fetch())
        finally:
            self._fetching.release()

    def release_segment(self, piece: SegmentSlice) -> None:
        """Give a slice back. The events taken from it count as read, the others come again."""

        async def release() -> None:
            self._reader.release_segment(piece)

        self._loop.run(release())

    def release_segment_at(self, piece: SegmentSlice, offset: int) -> None:
        """Give a slice back as read up to an offset, at which an event of it begins or ends."""
        piece.move_to(offset)
        self.release_segment(piece)

    def refresh(self) -> None:
        """Record the positions now, and take or give back segments as is due; else done from time to time."""
        self._loop.run(self._reader.refresh(), changes=True)

    def reader_offline(self) -> None:
        """Leave the group; other readers go on where this one stands."""
        self._loop.run(self._reader.reader_offline(), changes=True)


class BlockingReaderGroup:
    """A ``ReaderGroup`` whose calls wait."""

    def __init__(self, group: ReaderGroup, loop: LoopThread) -> None:
        self._group = group
        self._loop = loop
        self.scope = group.scope
        self.name = group.name

    @property
    def configuration(self) -> GroupConfiguration:
        return self._group.configuration

    def create_reader(self, reader_id: str) -> BlockingEventReader:
        """Add a reader; ``AlreadyExists`` while one of that name is online. An interrupt (Ctrl-C) of this call makes it
        leave again; one behind it, before the body of ``with``, leaves it online: ``reader_offline`` takes it out."""
        made: list[EventReader] = []
        turn = asyncio.Lock()

        async def create() -> None:
            async with turn:
                made.append(await self._group.create_reader(reader_id))

        async def take_back() -> None:
            async with turn:  # Until the creation has ended, which an interrupt cancels, or not.
                if made:
                    await made.pop().reader_offline()

        try:
            self._loop.run(create(), changes=True)
            return BlockingEventReader(made[0], self._loop)
        except Exception:
            raise  # Nothing was made.
        except BaseException:
            try:
                self._loop.run(take_back())
            except PravegaError as error:
                _log.warning("reader %s was not taken back and is in its group still: %s", reader_id, error)
            raise

    def readers_online(self) -> list[str]:
        """The names of the readers that are online, or died without leaving."""
        return self._loop.run(self._group.readers_online())

    def reader_offline(self, reader_id: str, last_positions: Positions | None = None) -> None:
        """Take a reader out that died; the others take its segments over."""
        self._loop.run(self._group.reader_offline(reader_id, last_positions), changes=True)

    def get_stream_cuts(self) -> dict[StreamName, StreamCut]:
        """The positions that the readers recorded last, one cut a stream."""
        return self._loop.run(self._group.get_stream_cuts())

    def publish_cuts(self, cuts: Mapping[StreamName, SegmentOffsets] | None = None) -> None:
        """Let retention drop what lies before the cuts, by default the recorded positions."""
        self._loop.run(self._group.publish_cuts(cuts), changes=True)

    def reset(self, cuts: Mapping[StreamName, SegmentOffsets]) -> None:
        """Begin again at a cut of every stream of the group. All readers are offline then."""
        self._loop.run(self._group.reset(cuts), changes=True)

    def initiate_checkpoint(self, name: str) -> None:
        """Begin a checkpoint; each reader adds its positions when it looks at the group next."""
        self._loop.run(self._group.initiate_checkpoint(name), changes=True)

    def wait_for_checkpoint(
        self, name: str, timeout_s: float = checkpoint_time_default_s
    ) -> dict[StreamName, StreamCut]:
        """The cuts of a checkpoint once all readers are in it; ``Unavailable`` if that takes too long."""
        return self._loop.run(self._group.wait_for_checkpoint(name, timeout_s))

    def list_checkpoints(self) -> dict[str, bool]:
        """The checkpoints that the group remembers, oldest first, and whether each is complete."""
        return self._loop.run(self._group.list_checkpoints())

    def discard_checkpoint(self, name: str) -> None:
        """Forget a checkpoint."""
        self._loop.run(self._group.discard_checkpoint(name), changes=True)

    def reset_to_checkpoint(self, name: str) -> None:
        """Begin again at a complete checkpoint; as ``reset``."""
        self._loop.run(self._group.reset_to_checkpoint(name), changes=True)
