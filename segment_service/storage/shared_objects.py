"""Keeps small objects of one container as entries of a sorted map, so that many of them are put as one.

Entries of the map ``shared``::

    name without the container's prefix     the bytes of the object
    "!"                                     the epoch that began the map (u64)

Names say where an object lies (``chunk_names.py``); those of epochs before the map began are objects of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import structlog

from pravega_common.errors import DataCorruption, PravegaError, SegmentNotFound
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, ChunkStorage
from segment_service.contracts.segment_storage import LogState
from segment_service.contracts.sorted_map import SortedMap
from segment_service.storage.chunk_names import Layout

T = TypeVar("T")

OPENED: Final = register("storage.shared.opened")
BEFORE_FLUSH: Final = register("storage.shared.before_flush")
FLUSHED: Final = register("storage.shared.flushed_before_answer")

shared_map_name: Final = "shared"
shared_object_bytes_max: Final = 64 << 10
"""Larger objects are put by themselves."""

group_changes_max: Final = 256
"""Changes of one flush, each of one or two entries: those that wait for it all go on at the same time."""

group_bytes_max: Final = 8 << 20
"""Bytes of one flush, but for its last object: one file of the map."""

gathering_time_s: Final = 0.1
"""Least time from the beginning of one flush of many changes to that of the next: 20 puts a second, 2,560 changes."""

many_changes: Final = 32
"""Changes of one flush from which on there is much to gather; after fewer the pause is shorter in proportion, so that
one segment alone does not wait."""

gathering_turns: Final = 4
"""Turns of the event loop without another change after which a flush begins: changes that waited for one mark, or fell
due at one time, come within a few turns of each other, and two flushes are twice the puts."""

gatherings_max: Final = 32
"""So many times turns are waited for: in them as many flushes begin as one flush of shared objects takes."""

answers_per_turn: Final = 2
"""Changes whose callers go on at once; then the event loop has its turn for others, appends above all."""

removal_time_s: Final = 10.0
"""Time for which removals wait for a flush that somebody asks for, before they have one of their own: each costs two
puts and, later, two deletions."""

retry_delay_max_s: Final = 60.0
"""Longest time before removals whose flush failed are flushed again, if nothing else is meanwhile."""

delay_doublings_max: Final = 10
"""Flushes that failed in a row and still count for that time: it is at its longest before."""

waiting_removals_max: Final = 20_000
"""Removals that wait for a flush; with more of them, each waits until it is done."""

entries_per_page: Final = 64
"""Entries read at once for a listing: 4 MiB at most."""

written_max: Final = 200_000
"""New segments with entries that are remembered; with more of them, look-ups do without."""

first_epoch_key: Final = b"!"
_EPOCH: Final = struct.Struct(">Q")


class _Waiting(NamedTuple):
    changes: tuple[tuple[bytes, bytes | None], ...]
    """Keys with their values, ``None`` to remove one: all in one flush."""
    done: asyncio.Future[None] | None
    """``None``: nobody waits for it."""


def first_epoch_in(value: bytes | None) -> int | None:
    """The epoch that began the map, from its entry; ``None`` without one."""
    if value is None:
        return None
    if len(value) != _EPOCH.size:
        raise DataCorruption(f"the first epoch of shared objects has {len(value)} bytes, not {_EPOCH.size}")
    epoch: int = _EPOCH.unpack(value)[0]
    return epoch


def entry_key(layout: Layout, name: str) -> bytes:
    """The key of the object ``name``; of a prefix, that of the entries below it."""
    return name.removeprefix(layout.prefix).encode()


def end_of(prefix: bytes) -> bytes | None:
    """The first key behind those that begin with the prefix, a part of a name; ``None`` for the empty one."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def may_hold_entries(layout: Layout, prefix: str) -> bool:
    """Whether names with this prefix may be those of entries."""
    return prefix.startswith((layout.chunks, layout.manifests)) or prefix == layout.prefix


def bytes_in(value: bytes, name: str, offset: int, length: int) -> bytes:
    """Bytes of an entry; ``DataCorruption`` if it does not have them."""
    if offset + length > len(value):
        raise DataCorruption(f"{name}: bytes {offset}+{length} wanted, it has {len(value)}")
    return value[offset : offset + length]


async def by_name(entries: AsyncIterator[ChunkInfo], objects: AsyncIterator[ChunkInfo]) -> AsyncIterator[ChunkInfo]:
    """Joins two listings, each in the order of names, into one in that order."""
    entry = await anext(entries, None)
    async for info in objects:
        while entry is not None and entry.name < info.name:
            yield entry
            entry = await anext(entries, None)
        yield info
    while entry is not None:
        yield entry
        entry = await anext(entries, None)


class SharedObjects:
    """``ChunkStorage`` of one container over that of all; ``open`` comes before any put.

    Without a map it hands every call on. An object that is removed is gone at once for this owner, and durably with a
    later flush; for later owners if none of them had opened the map by then.
    """

    def __init__(self, chunks: ChunkStorage, layout: Layout, clock: Clock) -> None:
        self.is_sharing = False
        """Whether new small objects become entries. Constant while an epoch lasts."""
        self.flushes = 0
        self._chunks = chunks
        self._layout = layout
        self._clock = clock
        self._map: SortedMap | None = None
        self._stamp: LogState | None = None
        self._first_epoch: int | None = None
        self._is_damaged = False
        """Whether the map can only be read."""
        self._new_from = math.inf
        """No earlier owner used the ids of segments from this one on: only ``_written`` have entries."""
        self._written: set[int] = set()
        self._waiting: deque[_Waiting] = deque()
        self._removed: dict[bytes, None] = {}
        """Keys whose removal is not durable yet."""
        self._is_flush_due = False
        """Whether what waits is flushed as soon as it can be. Removals alone wait for ``removal_time_s``."""
        self._flushing: asyncio.Task[None] | None = None
        self._flush_timer: asyncio.Task[None] | None = None
        """Begins a flush for removals when their time is over."""
        self._failures = 0
        """Flushes that failed since the last one that was done."""
        self._next_flush_s = -math.inf
        self._log = structlog.get_logger(service="shared-objects", container=layout.prefix)

    def attach(self, shared: SortedMap) -> None:
        """Set the map; before ``open``."""
        self._map = shared

    async def is_needed(self, wanted: bool) -> bool:
        """Whether the container shares objects, or did once."""
        return self._map is not None and (wanted or await self._map.newest_stamp() is not None)

    async def open(self, epoch: int, wanted: bool, log: LogState) -> None:
        """Open the map, and flush it, so that nothing that earlier owners still flush counts. May be repeated. ``log``:
        as the first mark of the epoch has it."""
        shared = self._map
        if shared is None or not await self.is_needed(wanted):
            return
        await shared.open()
        stamp = LogState(log.identity, 0, 1)  # no state of the log: marks say what it must have
        first_epoch: int | None = 0  # unless the map says otherwise: entries of any epoch are read
        try:
            first_epoch = first_epoch_in(await shared.get(first_epoch_key))
            if first_epoch is None:
                first_epoch = epoch
            await shared.flush({first_epoch_key: _EPOCH.pack(first_epoch)}, stamp)
        except DataCorruption as error:  # of that entry, or of runs that must be merged before a flush
            self._log.error("no object is shared in this epoch, and none that was is removed", reason=str(error))
            self._is_damaged = True
        self._first_epoch, self._stamp = first_epoch, stamp
        self._new_from = log.next_segment_id
        self.is_sharing = wanted and not self._is_damaged
        failpoint(OPENED)

    # --- ChunkStorage

    async def start(self) -> None:
        """Do nothing: the maker of the chunk storage starts it."""

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        if not self.is_entry(name):
            await self._chunks.put(name, data)
            return
        await self.put_together(((name, data),))

    async def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        """As ``put``, of some objects that become entries, all or none."""
        check(self.is_sharing, "an object is shared in an epoch that shares none", names=[name for name, _ in objects])
        for name, _ in objects:
            self._note_written(name)
        await self._change(tuple((entry_key(self._layout, name), b"".join(data)) for name, data in objects))

    async def get(self, name: str, offset: int, length: int) -> bytes:
        if not self.is_entry(name):
            return await self._chunks.get(name, offset, length)
        return bytes_in(await self._value(name), name, offset, length)

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        if not self.is_entry(name):
            return await self._chunks.get_with(name, offset, length, function)
        return function(bytes_in(await self._value(name), name, offset, length))

    async def info(self, name: str) -> ChunkInfo:
        if not self.is_entry(name):
            return await self._chunks.info(name)
        return ChunkInfo(name, len(await self._value(name)))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        async for info in by_name(self._entries(prefix), self._chunks.list(prefix)):
            yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        entries = dict.fromkeys(filter(self.is_entry, names))
        failed = dict[str, PravegaError]()
        if not self._is_damaged:
            for name in entries:
                try:
                    await self._remove(entry_key(self._layout, name))
                except PravegaError as error:
                    failed[name] = error
        objects = [name for name in names if name not in entries]
        return {**failed, **await self._chunks.delete_all(objects)} if objects else failed

    async def settle(self) -> bool:
        """Return once the removals of all objects that were deleted are durable. Whether there may have been some: a
        later owner that opened the map before they were flushed sees none of them."""
        if self._removed:
            await self._change(())
        return self._first_epoch is not None

    async def close(self) -> None:
        """End what is under way; the objects stay."""
        tasks = [task for task in (self._flush_timer, self._flushing) if task is not None]
        self._flush_timer = self._flushing = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- entries

    def is_entry(self, name: str) -> bool:
        """Whether the object lies in the map, so that its removal is durable with a later flush only."""
        if self._first_epoch is None:
            return False
        epoch = self._layout.shared_epoch_in(name)
        return epoch is not None and epoch >= self._first_epoch

    def stays(self, name: str) -> bool:
        """Whether the object cannot be removed in this epoch: it lies in a damaged map."""
        return self._is_damaged and self.is_entry(name)

    async def _value(self, name: str) -> bytes:
        key = entry_key(self._layout, name)
        value = await self._map.get(key) if self._map is not None and key not in self._removed else None
        if value is None:
            raise SegmentNotFound(name)
        return value

    async def _entries(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        if self._map is None or self._first_epoch is None or not may_hold_entries(self._layout, prefix):
            return
        segment_id = self._layout.segment_in(prefix)
        if segment_id is not None and segment_id >= self._new_from and segment_id not in self._written:
            return  # a look-up by prefix would ask every run
        begin = key = entry_key(self._layout, prefix)
        while page := await self._map.scan(key or b"\0", entries_per_page, end_of(begin)):
            for key, value in page:
                if key not in self._removed and key != first_epoch_key:
                    yield ChunkInfo(self._layout.prefix + key.decode(), len(value))
            if len(page) < entries_per_page:
                return
            key += b"\0"

    def _note_written(self, name: str) -> None:
        segment_id = self._layout.segment_in(name)
        if segment_id is not None and segment_id >= self._new_from:
            self._written.add(segment_id)
            if len(self._written) > written_max:
                self._new_from = math.inf
                self._written.clear()

    # --- flushes

    async def _change(self, changes: tuple[tuple[bytes, bytes | None], ...]) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(changes, done))
        self._begin_flush()
        try:
            await done
        finally:
            del done  # its error has this frame

    async def _remove(self, key: bytes) -> None:
        self._removed[key] = None
        if len(self._removed) > waiting_removals_max:
            await self._change(((key, None),))
            return
        self._waiting.append(_Waiting(((key, None),), None))
        if len(self._waiting) >= group_changes_max:
            self._begin_flush()
        else:
            self._plan_flush()

    def _plan_flush(self) -> None:
        if self._waiting and (self._flush_timer is None or self._flush_timer.done()):
            self._flush_timer = asyncio.get_running_loop().create_task(self._flush_later())

    async def _flush_later(self) -> None:
        await self._clock.sleep(min(retry_delay_max_s, removal_time_s * 2**self._failures))
        if self._waiting:
            self._begin_flush()

    def _begin_flush(self) -> None:
        self._is_flush_due = True
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush_all())

    async def _flush_all(self) -> None:
        """Flush while a flush is due, or until one fails. Removals that it left wait for the next one that is begun, or
        for a while."""
        while self._waiting and self._is_flush_due:
            pause_s = self._next_flush_s - self._clock.monotonic_s()
            if pause_s > 0:
                await self._clock.sleep(pause_s)
            await self._gather()
            group = self._take()
            self._next_flush_s = self._clock.monotonic_s() + gathering_time_s * min(len(group) / many_changes, 1)
            try:
                await self._flush(group)
            except BaseException as error:
                is_told = self._fail([*group, *self._waiting], error)
                if isinstance(error, asyncio.CancelledError) or not (is_told or isinstance(error, PravegaError)):
                    raise
                if not is_told:
                    self._log.warning("removals of shared objects wait", error=str(error), count=len(self._waiting))
                self._failures = min(self._failures + 1, delay_doublings_max)
                self._plan_flush()
                return
            else:
                self._failures = 0
                for key, value in itertools.chain.from_iterable(one.changes for one in group):
                    if value is None:
                        self._removed.pop(key, None)
                await _answer_in_turns(group)

    async def _gather(self) -> None:
        """Wait for changes that come at the same time, up to as many as one flush takes."""
        for _ in range(gatherings_max):
            gathered = len(self._waiting)
            if gathered >= group_changes_max:
                return
            for _ in range(gathering_turns):
                await asyncio.sleep(0)
            if len(self._waiting) == gathered:
                return

    def _fail(self, changes: Sequence[_Waiting], error: BaseException) -> bool:
        """Tell all that wait of a failed flush, also those behind it: it may be removals alone, 20,000 of them, which
        are taken again before everything else. Whether anybody waited."""
        self._waiting = deque(one for one in changes if one.done is None)
        return _answer(changes, error)

    def _take(self) -> Sequence[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < group_changes_max and size < group_bytes_max:
            group.append(self._waiting.popleft())
            size += sum(len(value or b"") for _, value in group[-1].changes)
        self._is_flush_due = bool(self._waiting)
        if not self._waiting and self._flush_timer is not None:
            self._flush_timer.cancel()  # what it was for is taken
            self._flush_timer = None
        return group

    async def _flush(self, group: Sequence[_Waiting]) -> None:
        check(self._map is not None and self._stamp is not None, "shared objects are not open")
        if self._map is None or self._stamp is None:
            return
        failpoint(BEFORE_FLUSH)
        changes = dict(itertools.chain.from_iterable(one.changes for one in group))
        await self._map.flush(changes, self._stamp)
        self.flushes += 1
        failpoint(FLUSHED)


async def _answer_in_turns(group: Sequence[_Waiting]) -> None:
    """Tell those that wait for a flush that it is done, a few at a time: each goes on with work of its own."""
    try:
        for first in range(0, len(group), answers_per_turn):
            _answer(group[first : first + answers_per_turn], None)
            await asyncio.sleep(0)
    finally:
        _answer(group, None)


def _answer(group: Sequence[_Waiting], error: BaseException | None) -> bool:
    """Tell those that wait for a flush; whether anybody does."""
    waiting = [one.done for one in group if one.done is not None and not one.done.done()]
    for done in waiting:
        if error is None:
            done.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            done.cancel()
        else:
            done.set_exception(error)
    return bool(waiting)
