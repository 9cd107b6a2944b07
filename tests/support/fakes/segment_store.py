"""Keeps segments in memory: the fake of a container, for tests of everything that stands in front of one.

It keeps the contract of ``SegmentStore`` to the letter, durability apart: an operation is queued when it is called and
applied, whole, when its turn to "become durable" comes. ``hold`` stops that clock and ``release`` starts it again, so
that a test can look at operations that are on their way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pravega_common.errors import (
    BadAttributeUpdate,
    BadOffset,
    ContainerOffline,
    InvalidArgument,
    PravegaError,
    SegmentExists,
    SegmentMerged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnsupportedOperation,
)
from pravega_common.event_index import IndexRecord, encode_records, index_record_bytes
from pravega_common.names import (
    index_segment_name,
    is_index_segment,
    is_transient_segment,
    is_user_stream_segment,
)
from pravega_common.runtime.clock import Clock, SystemClock
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    EXPECTED_INDEX_EVENT_SIZE,
    NULL_ATTRIBUTE_VALUE,
    SEGMENT_TYPE,
    TABLE_TYPES,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_store import (
    MergeResult,
    ReadResult,
    SegmentProperties,
    SegmentState,
    read_bytes_max,
)

_T = TypeVar("_T")


class _Segment:
    def __init__(self, name: str, segment_id: int, now_ms: int) -> None:
        self.name = name
        self.segment_id = segment_id
        self.data = bytearray()
        self.start_offset = 0
        self.is_sealed = False
        self.is_deleted = False
        self.last_modified_ms = now_ms
        self.attributes: dict[AttributeId, int] = {}
        self.waiters: list[asyncio.Future[None]] = []
        self.merged_events = 0
        self.boundaries: list[IndexRecord] = []
        """Ends of all appends and merges."""

    @property
    def events(self) -> int:
        return self.attributes.get(EVENT_COUNT, 0) + self.merged_events

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class InMemorySegmentStore:
    """``SegmentStore`` and ``BackPressure`` over dictionaries; see the module for ``hold`` and ``release``."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._segments: dict[str, _Segment] = {}
        self._merged: dict[str, tuple[_Segment, int]] = {}
        self._next_segment_id = 1
        self._queue: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_held = False
        self._is_stopped = False
        self._gate = asyncio.Event()
        self._gate.set()

    # ---- control by tests --------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let nothing become durable until ``release``."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._schedule()

    @property
    def queued_operations(self) -> int:
        return len(self._queue)

    def close_gate(self) -> None:
        """Back-pressure: take no more bytes from sockets until ``open_gate``."""
        self._gate.clear()

    def open_gate(self) -> None:
        self._gate.set()

    @property
    def is_open(self) -> bool:
        return self._gate.is_set()

    async def wait_open(self) -> None:
        await self._gate.wait()

    def stop(self) -> None:
        """End waiting reads and refuse everything from now on with ``ContainerOffline``."""
        self._is_stopped = True
        for segment in self._segments.values():
            segment.wake()

    @property
    def segment_names(self) -> list[str]:
        """Without index segments."""
        return sorted(name for name in self._segments if not is_index_segment(name))

    def waiting_reads(self, segment: str) -> Sequence[asyncio.Future[None]]:
        """The reads that wait at the end of a segment now; the list changes with them."""
        return self._segments[segment].waiters

    def boundaries(self, segment: str) -> set[int]:
        """The ends of all appends to a segment and merges into it."""
        return {record.length for record in self._segments[segment].boundaries}

    # ---- SegmentStore ------------------------------------------------------------------------------------------------

    async def create_segment(self, segment: str, attributes: Sequence[AttributeUpdate] = ()) -> None:
        def apply() -> None:
            if segment in self._segments:
                raise SegmentExists(segment)
            made = _Segment(segment, self._next_segment_id, self._clock.wall_ms())
            made.attributes[CREATION_TIME] = made.last_modified_ms
            _apply_updates(made, attributes)
            self._next_segment_id += 1
            self._segments[segment] = made
            if is_user_stream_segment(segment):
                self._create_index(made)

        await self._submit(apply)

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        def apply() -> int:
            target = self._open_segment(segment)
            staged = _staged(target, updates)
            if expected_offset is not None and expected_offset != len(target.data):
                raise BadOffset(segment, len(target.data), expected_offset)
            target.attributes = staged
            for part in data:
                target.data += part
            target.last_modified_ms = self._clock.wall_ms()
            target.wake()
            self._index(target)
            return len(target.data)

        return self._submit(apply)

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        source = self._segment(segment)
        waited = False
        while True:
            if self._is_stopped or source.is_deleted:
                return ReadResult(offset, (), at_tail=True, end_of_segment=False, has_waited=True)
            if offset < source.start_offset:
                raise SegmentTruncated(segment, source.start_offset, offset)
            length = len(source.data)
            if offset < length:
                return replace(_read_now(source, offset, min(length_max, read_bytes_max)), has_waited=waited)
            if source.is_sealed:
                if waited:
                    raise SegmentSealed(segment, offset=offset)
                if offset > length:
                    raise BadOffset(segment, length, offset)
                return ReadResult(offset, (), at_tail=False, end_of_segment=True)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            source.waiters.append(waiter)
            await waiter
            waited = True

    def read_in_memory(self, segment: str, offset: int, length_max: int) -> ReadResult | None:
        source = self._segment(segment)
        if self._is_stopped or source.is_deleted or not source.start_offset <= offset < len(source.data):
            return None
        return _read_now(source, offset, min(length_max, read_bytes_max))

    async def get_info(self, segment: str) -> SegmentProperties:
        source = self._segment(segment)
        return SegmentProperties(
            name=segment,
            segment_id=source.segment_id,
            start_offset=source.start_offset,
            length=len(source.data),
            storage_length=len(source.data),
            is_sealed=source.is_sealed,
            last_modified_ms=source.last_modified_ms,
            attributes=dict(source.attributes),
        )

    def state_in_memory(self, segment: str) -> SegmentState:
        source = self._segment(segment)
        return SegmentState(source.start_offset, len(source.data), source.is_sealed, source.last_modified_ms)

    async def locate_offset(self, segment: str, offset: int) -> int:
        """Every append and merge is a known boundary at once."""
        if offset < 0:
            raise InvalidArgument(f"{segment}: offset {offset} must be ≥ 0")
        source = self._segment(segment)
        lengths = [record.length for record in source.boundaries]
        at_least = max(offset, source.start_offset)
        return next((length for length in lengths if length >= at_least), len(source.data))

    async def get_attribute(self, segment: str, attribute_id: AttributeId) -> int:
        return self._segment(segment).attributes.get(attribute_id, NULL_ATTRIBUTE_VALUE)

    async def update_attributes(self, segment: str, updates: Sequence[AttributeUpdate]) -> None:
        await self._submit(lambda: _apply_updates(self._open_segment(segment), updates))

    async def seal(self, segment: str) -> int:
        def apply() -> int:
            target = self._open_segment(segment)
            target.is_sealed = True
            target.last_modified_ms = self._clock.wall_ms()
            target.wake()
            return len(target.data)

        return await self._submit(apply)

    async def truncate(self, segment: str, offset: int) -> None:
        def apply() -> None:
            target = self._segment(segment)
            if not target.start_offset <= offset <= len(target.data):
                raise SegmentTruncated(segment, target.start_offset, offset)
            target.start_offset = offset
            target.wake()
            self._truncate_index(target)

        await self._submit(apply)

    async def delete(self, segment: str) -> None:
        def apply() -> None:
            self._remove(self._segment(segment))

        await self._submit(apply)

    async def merge(self, target: str, source: str, updates: Sequence[AttributeUpdate] = ()) -> MergeResult:
        def apply() -> MergeResult:
            into = self._segment(target)
            if source not in self._segments and (merged := self._merged.get(source)) and merged[0] is into:
                raise SegmentMerged(source, merged[1])
            taken = self._segment(source)
            if taken.attributes.get(SEGMENT_TYPE) in TABLE_TYPES:
                raise UnsupportedOperation(f"{source} is the segment of a table, which is merged into no other")
            if into.is_sealed:
                raise SegmentSealed(target)
            if taken.start_offset:
                raise SegmentTruncated(source, taken.start_offset, 0)
            _apply_updates(into, updates)
            into.data += taken.data
            into.merged_events += min(len(taken.data), 1) if is_transient_segment(source) else max(taken.events, 0)
            into.last_modified_ms = self._clock.wall_ms()
            self._merged[source] = into, len(into.data)
            self._remove(taken)
            into.wake()
            self._index(into)
            return MergeResult(target_length=len(into.data), merged_length=len(taken.data))

        return await self._submit(apply)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _segment(self, name: str) -> _Segment:
        if self._is_stopped:
            raise ContainerOffline(f"the store of {name} is stopped")
        found = self._segments.get(name)
        if found is None:
            raise SegmentMerged(name) if name in self._merged else SegmentNotFound(name)
        return found

    def _open_segment(self, name: str) -> _Segment:
        found = self._segment(name)
        if found.is_sealed:
            raise SegmentSealed(name)
        return found

    def _remove(self, segment: _Segment) -> None:
        del self._segments[segment.name]
        segment.is_deleted = True
        segment.wake()
        index = self._segments.get(index_segment_name(segment.name))
        if index is not None:
            self._remove(index)

    # The index segment of a user's stream segment has a record for everything that was added.

    def _create_index(self, segment: _Segment) -> None:
        index = _Segment(index_segment_name(segment.name), self._next_segment_id, segment.last_modified_ms)
        index.attributes[CREATION_TIME] = segment.last_modified_ms
        index.attributes[EXPECTED_INDEX_EVENT_SIZE] = index_record_bytes
        self._next_segment_id += 1
        self._segments[index.name] = index

    def _index(self, segment: _Segment) -> None:
        last = segment.boundaries[-1] if segment.boundaries else IndexRecord(0, 0, 0)
        index = self._segments.get(index_segment_name(segment.name))
        if index is None or len(segment.data) == last.length:
            return
        record = IndexRecord(
            len(segment.data), max(last.event_count, segment.events), max(last.time_ms, segment.last_modified_ms)
        )
        segment.boundaries.append(record)
        index.data += encode_records([record])
        index.attributes[EVENT_COUNT] = record.event_count
        index.wake()

    def _truncate_index(self, segment: _Segment) -> None:
        index = self._segments.get(index_segment_name(segment.name))
        if index is not None:
            below = sum(record.length <= segment.start_offset for record in segment.boundaries)
            index.start_offset = max(below - 1, 0) * index_record_bytes

    def _submit(self, apply: Callable[[], _T]) -> asyncio.Future[_T]:
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                result: Any = apply()
            except PravegaError as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self._queue.append(run)
        self._schedule()
        return done

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_held and self._queue:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_queue)

    def _run_queue(self) -> None:
        self._is_scheduled = False
        while self._queue and not self._is_held:
            self._queue.popleft()()


def _read_now(source: _Segment, offset: int, length_max: int) -> ReadResult:
    available = len(source.data) - offset
    data = memoryview(bytes(source.data[offset : offset + length_max]))
    ran_into_end = length_max > available
    return ReadResult(
        offset,
        (data,),
        at_tail=ran_into_end and not source.is_sealed,
        end_of_segment=ran_into_end and source.is_sealed,
    )


def _apply_updates(segment: _Segment, updates: Sequence[AttributeUpdate]) -> None:
    segment.attributes = _staged(segment, updates)


def _staged(segment: _Segment, updates: Sequence[AttributeUpdate]) -> dict[AttributeId, int]:
    staged = dict(segment.attributes)
    for update in updates:
        if update.attribute_id == EVENT_COUNT and staged.get(SEGMENT_TYPE) in TABLE_TYPES:
            raise UnsupportedOperation(f"{segment.name} is the segment of a table, which takes no events")
        value = _updated(segment.name, update, staged.get(update.attribute_id, NULL_ATTRIBUTE_VALUE))
        if value == NULL_ATTRIBUTE_VALUE:
            staged.pop(update.attribute_id, None)
        else:
            staged[update.attribute_id] = value
    return staged


def _updated(segment: str, update: AttributeUpdate, current: int) -> int:
    kind, is_absent = update.update_type, current == NULL_ATTRIBUTE_VALUE
    if kind is AttributeUpdateType.ACCUMULATE:
        return update.value if is_absent else current + update.value
    is_allowed = (
        kind is AttributeUpdateType.REPLACE
        or (kind is AttributeUpdateType.NONE and is_absent)
        or (kind is AttributeUpdateType.REPLACE_IF_GREATER and (is_absent or update.value > current))
        or (kind is AttributeUpdateType.REPLACE_IF_EQUALS and current == update.comparison)
    )
    if not is_allowed:
        raise BadAttributeUpdate(segment, update.attribute_id, current)
    return update.value
