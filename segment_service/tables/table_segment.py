"""Tracks one table: its index, and the updates that are on their way into its log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from pravega_common.errors import BadKeyVersion, TableError
from pravega_common.invariants import check
from segment_service.contracts.table_store import NO_VERSION, NOT_EXISTS, TableKey
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.key_index import KeyIndex
from segment_service.tables.layout import TableLayout
from segment_service.tables.paged_index import PagedKeyIndex

compaction_bytes_min: Final = 1024 * 1024
"""A log shorter than this is not compacted."""
live_fraction_min: Final = 0.5
"""A log is compacted when live records are a smaller part of it."""


TableIndex = KeyIndex | PagedKeyIndex
"""All keys in memory, or in Tier 2 but for some."""


class Update:
    """One record to write: a put, or a removal (``value is None``). ``version`` as in the record."""

    __slots__ = ("key", "size", "value", "version")

    def __init__(self, key: bytes, value: bytes | None, version: int = NO_VERSION) -> None:
        self.key = key
        self.value = value
        self.version = version
        self.size = record_size(len(key), None if value is None else len(value))


class Batch:
    """Updates that were appended together at ``offset``, and are not yet known to be durable."""

    __slots__ = ("done", "offset", "size", "updates")

    def __init__(self, offset: int, updates: Sequence[Update]) -> None:
        self.offset = offset
        self.updates = updates
        self.size = sum(update.size for update in updates)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_mark_retrieved)

    async def settled(self) -> None:
        """Wait until the batch is durable or failed; raises nothing."""
        await asyncio.wait((self.done,))

    def versions(self) -> list[int]:
        """The version of each update: the offset of its record, unless it carries one."""
        found, offset = [], self.offset
        for update in self.updates:
            found.append(offset if update.version == NO_VERSION else update.version)
            offset += update.size
        return found


def _mark_retrieved(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


class TableSegment:
    """A state machine without I/O.

    ``index`` holds what is durable, up to ``indexed_to``; ``tail`` is where the next record will lie, behind the
    pending batches. Every append names ``tail`` as the offset it expects, so the versions are known before the write,
    and a batch that was checked against pending ones cannot land without them. ``is_stale``: the log holds more, or
    something else, than is known here; nothing is added until it was read again.
    """

    def __init__(
        self,
        name: str,
        segment_id: int,
        layout: TableLayout,
        start_offset: int,
        index: TableIndex,
        container: object = None,
    ) -> None:
        """``container``: the one that runs the segment, with which the table goes."""
        self.name = name
        self.container = container
        self.segment_id = segment_id
        self.layout = layout
        self.index = index
        self.start_offset = start_offset
        self.indexed_to = start_offset
        self.tail = start_offset
        self.is_stale = isinstance(index, PagedKeyIndex)  # until it is loaded
        self.is_compacting = False
        self._compacted_to = start_offset
        self.cuts: deque[tuple[int, int]] = deque()
        """Offsets at which the log may be cut, and its length with all that took the place of what lies below."""
        self.counted_bytes = 0
        """What the memory of the index counts as among that of all tables."""
        self.keys_max = 0
        """Keys from which on another attempt is made to bring the index to Tier 2; 0 before the first one."""
        self.lock = asyncio.Lock()
        self.pending: deque[Batch] = deque()
        self._pending_keys: dict[bytes, tuple[int, Batch]] = {}

    def is_fresh(self, length: int) -> bool:
        """Whether index and pending batches explain a log of this length."""
        if self.is_stale:
            return False
        return self.indexed_to <= length <= self.tail if self.pending else length == self.tail

    def pending_batch(self, key: bytes) -> Batch | None:
        pending = self._pending_keys.get(key)
        return None if pending is None else pending[1]

    @property
    def compacted_to(self) -> int:
        """The offset below which no record lives, as far as that was looked for: the log is cut there, or will be."""
        return max(self._compacted_to, self.start_offset)

    def compacted(self, end: int, length: int) -> None:
        """All below ``end`` was replaced or copied by a log of this length."""
        self._compacted_to = end
        self.cuts.append((end, length))

    # --- conditions --------------------------------------------------------------------------------------------------

    def check_conditions(self, conditions: Sequence[TableKey]) -> Batch | None:
        """Check conditions behind the pending batches; ``None`` if all hold.

        Raises ``KeyNotFound`` or ``BadKeyVersion`` if one fails for what is durable; returns a batch to wait for if
        only pending updates stand against it.
        """
        blocker: Batch | None = None
        for condition in conditions:
            pending = self._pending_keys.get(condition.key)
            current = self._durable_version(condition.key) if pending is None else pending[0]
            if current != condition.version:
                error = self._durable_error(conditions)
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error  # it has this frame, and would keep the request until the collector comes
                check(pending is not None, "a condition fails without a reason", segment=self.name)
                blocker = pending[1] if pending is not None else None
                break
        return blocker

    def _durable_version(self, key: bytes) -> int:
        slot = self.index.get(key)
        return NOT_EXISTS if slot is None else slot.version

    def _durable_error(self, conditions: Sequence[TableKey]) -> TableError | None:
        """The first absent key with a concrete version decides, else the first mismatch (docs/wire-protocol.md 2.2)."""
        mismatch: TableError | None = None
        for condition in conditions:
            current = self._durable_version(condition.key)
            if current == condition.version:
                continue
            error: TableError = BadKeyVersion(self.name)
            if current == NOT_EXISTS:
                error = self.layout.absent_key_error(self.name, self.index.was_removed(condition.key))
            if not isinstance(error, BadKeyVersion):
                return error
            mismatch = mismatch or error
        return mismatch

    # --- updates -----------------------------------------------------------------------------------------------------

    def begin(self, updates: Sequence[Update]) -> Batch:
        """The batch takes its place behind the pending ones; the caller appends it at once."""
        check(not self.is_stale, "an update of a stale table", segment=self.name)
        batch = Batch(self.tail, updates)
        self.tail += batch.size
        self.pending.append(batch)
        self.index.pin(update.key for update in updates)
        for update, version in zip(updates, batch.versions(), strict=True):
            self._pending_keys[update.key] = (NOT_EXISTS if update.value is None else version, batch)
        return batch

    def end(self, batch: Batch, error: BaseException | None) -> None:
        """The batch is durable, or failed. Called in the order of the log."""
        self.pending.remove(batch)
        index = self.index
        for update in batch.updates:
            if self._pending_keys.get(update.key, (0, None))[1] is batch:
                del self._pending_keys[update.key]
        if error is not None or batch.offset != self.indexed_to or self.is_stale:
            self.is_stale = True
        else:
            self._apply(batch)
        index.unpin(update.key for update in batch.updates)
        if batch.done.done():
            return
        if error is not None:
            batch.done.set_exception(error)
        else:
            batch.done.set_result(None)

    def _apply(self, batch: Batch) -> None:
        offset = batch.offset
        for update, version in zip(batch.updates, batch.versions(), strict=True):
            if update.value is None:
                self.index.remove(update.key)
            else:
                self.index.put(update.key, update.value, version, offset)
            offset += update.size
        self.indexed_to = offset

    async def drained(self) -> None:
        """Wait until nothing is pending."""
        while self.pending:
            await self.pending[-1].settled()

    @property
    def wants_compaction(self) -> bool:
        log_bytes = self.indexed_to - self.compacted_to
        return (
            log_bytes > compaction_bytes_min
            and self.index.compactable_to(self.indexed_to) > self.compacted_to
            and self.index.live_bytes < live_fraction_min * log_bytes
            and not self.is_compacting
            and not self.is_stale
        )
