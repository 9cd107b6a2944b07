"""Indexes the keys of one large table: what changed lately in memory, everything in a sorted map in Tier 2.

Four layers, the first that knows a key decides: changes since the last flush; those that a flush is writing; a cache of
what the map says, absent keys too; the map. A key can be changed only while one of the first three knows it, so that
the totals stay exact: ``bring`` looks the others up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from sortedcontainers import SortedList

from pravega_common.errors import DataCorruption, SegmentNotFound
from pravega_common.invariants import check
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.table_maps import TableMap
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.index_entry import (
    TOTALS_KEY,
    Totals,
    decode_entry,
    decode_totals,
    encode_entry,
    encode_totals,
    entries_within,
    entry_bytes,
    entry_key,
    page_bound,
)
from segment_service.tables.key_index import (
    InlineBudget,
    PageEntry,
    Slot,
    key_memory_bytes,
    value_inline_bytes_max,
)
from segment_service.tables.removed_keys import RemovedKeys

T = TypeVar("T")

FLUSHED: Final = register("tables.paged_index.flushed_before_memory")

flush_keys: Final = 10_000
"""Changed keys that make a flush due."""
flush_bytes: Final = 4 * 1024 * 1024
"""Bytes of changed entries that make a flush due."""
flush_log_bytes: Final = 16 * 1024 * 1024
"""Bytes of log beyond what the map covers that make a flush due: a restart reads them."""
changed_keys_max: Final = 40_000
"""Changed keys in memory: updates wait for a flush when there are more, and are refused if it fails."""
changed_bytes_max: Final = 8 * 1024 * 1024
"""Bytes of changed entries in memory, likewise. With one more request, which may have 16 MiB, they fit one flush."""
cached_keys_max: Final = 20_000
"""Keys in the cache: twice what one request may name."""
keys_per_turn: Final = 500
"""Keys that are encoded or moved in one turn of the event loop: two or three milliseconds."""
reads_beside_flushes_max: Final = 4
"""How often a read of the map begins again when a flush ended meanwhile, before it holds flushes up."""


class PagedKeyIndex:
    """The index of one table at one epoch of its container. Changes come in log order."""

    def __init__(
        self, table: str, order_key: Callable[[bytes], bytes], budget: InlineBudget, table_map: TableMap
    ) -> None:
        self.table_map = table_map
        self.is_loaded = False
        self.is_cleared = False
        self.changed_bytes = 0
        """Bytes of the entries that changed and that a flush is writing."""
        self.covered = 0
        """Length of the log that the map covers."""
        self.live_bytes = 0
        self._table = table
        self._order_key = order_key
        self._budget = budget
        self._keys = 0
        self._changed: dict[bytes, Slot | None] = {}
        self._flushing: dict[bytes, Slot | None] = {}
        self._cached: OrderedDict[bytes, Slot | None] = OrderedDict()
        self._changed_order = SortedList()
        """(order key, key) of what changed and what a flush is writing."""
        self._pins: dict[bytes, int] = {}
        self._removed = RemovedKeys()
        self._cached_bytes = 0
        """Bytes of the keys in the cache."""
        self._inline_bytes = 0
        self._flushes = 0
        """Flushes that ended: a look-up of the map that began before the last one is out of date."""

    def __len__(self) -> int:
        return self._keys

    @property
    def memory_bytes(self) -> int:
        """As ``KeyIndex.memory_bytes``: of what changed, of what a flush is writing, and of the cache."""
        keys = len(self._changed) + len(self._flushing) + len(self._cached)
        return key_memory_bytes * keys + self.changed_bytes + self._cached_bytes + self._removed.memory_bytes

    async def load(self, start_offset: int, length: int) -> None:
        """Find what the map has of a log with these ends; ``covered`` says from where the log must be read."""
        async with self.table_map.writing:  # an index that was forgotten may be flushing still
            await self.table_map.open()
            totals = await self._totals()
            if totals is None or totals.covered < start_offset:
                # Of another log, or older than the log's first record: the log has everything that lives.
                await self.table_map.remove_all()
                await self.table_map.open()
                totals = Totals(start_offset, 0, 0)
            if totals.covered > length:
                raise DataCorruption(
                    f"{self._table}: its index in Tier 2 covers {totals.covered} bytes, its log has {length}: "
                    "the log lost what was acknowledged"
                )
            self.covered, self._keys, self.live_bytes = totals.covered, totals.keys, totals.live_bytes
            self.is_loaded = True

    async def _totals(self) -> Totals | None:
        stamp = self.table_map.stamp
        if stamp is None or stamp.identity != self.table_map.identity:
            return None
        data = await self.table_map.get(TOTALS_KEY)
        if data is None:
            raise DataCorruption(f"{self._table}: its index in Tier 2 has no totals")
        return decode_totals(data, self._table)

    def clear(self) -> None:
        """Forget everything that is in memory, for good."""
        self.is_cleared = True
        self._budget.give_back(self._inline_bytes)
        self._inline_bytes = 0
        self._changed, self._flushing, self._cached = {}, {}, OrderedDict()
        self._changed_order = SortedList()
        self.changed_bytes = self._cached_bytes = 0

    # --- keys --------------------------------------------------------------------------------------------------------

    def is_resident(self, keys: Iterable[bytes]) -> bool:
        """Whether ``get`` can be asked about the keys."""
        return all(key in self._changed or key in self._flushing or key in self._cached for key in keys)

    async def bring(self, keys: Sequence[bytes]) -> None:
        """See to it that the keys are resident, now and for a while. ``SegmentNotFound`` if the table is gone."""
        missing = sorted(key for key in set(keys) if not self.is_resident((key,)))  # neighbours may share a block
        if not missing:
            return
        self.pin(keys)  # those that are resident stay so
        try:
            await self._look_up(missing)
        finally:
            self.unpin(keys)

    async def _look_up(self, missing: Sequence[bytes]) -> None:
        for first in range(0, len(missing), keys_per_turn):
            places = {key: entry_key(self._order_key(key)) for key in missing[first : first + keys_per_turn]}
            found = await self._read(partial(self.table_map.get_many, list(places.values())))
            if self.is_cleared:
                return
            for key, place in places.items():
                if not self.is_resident((key,)):
                    self._cache(key, self._decode(key, found.get(place)))
            await asyncio.sleep(0)
        self._trim()

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read the map as it is still when the caller goes on: no flush ended since."""
        for _ in range(reads_beside_flushes_max):
            flushes = self._flushes
            self._check_open()
            found = await read()
            if flushes == self._flushes or self.is_cleared:
                return found
        async with self.table_map.writing:
            self._check_open()
            return await read()

    def get(self, key: bytes) -> Slot | None:
        """The live record of a resident key."""
        for layer in (self._changed, self._flushing):
            if key in layer:
                return layer[key]
        check(key in self._cached, "a key was not looked up before it was used", table=self._table)
        return self._cached[key]

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, Slot] | None:
        """The live records of those keys that exist; ``None`` if the index was cleared meanwhile."""
        await self.bring(keys)
        if self.is_cleared:
            return None
        return {key: slot for key in keys if (slot := self.get(key)) is not None}

    def was_removed(self, key: bytes) -> bool:
        return key in self._removed

    def pin(self, keys: Iterable[bytes]) -> None:
        """Keep resident keys until they are unpinned as often."""
        for key in keys:
            self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            left = self._pins.get(key, 0) - 1
            if left > 0:
                self._pins[key] = left
            else:
                self._pins.pop(key, None)

    def put(self, key: bytes, value: bytes | memoryview, version: int, offset: int) -> None:
        length = len(value)
        is_inline = length <= value_inline_bytes_max and self._budget.take(length)
        self._inline_bytes += length if is_inline else 0
        self._forget(key, self.get(key))
        self._removed.discard(key)
        self._change(key, Slot(version, offset, length, bytes(value) if is_inline else None))
        self._keys += 1
        self.live_bytes += record_size(len(key), length)

    def remove(self, key: bytes) -> None:
        old = self.get(key)
        if old is None:
            return
        self._forget(key, old)
        self._change(key, None)
        self._removed.add(key)

    def _forget(self, key: bytes, old: Slot | None) -> None:
        if old is not None:
            self._keys -= 1
            self.live_bytes -= record_size(len(key), old.value_length)

    def _change(self, key: bytes, slot: Slot | None) -> None:
        if key in self._changed:
            self._uncharge(key, self._changed[key])
        elif key not in self._flushing:
            self._changed_order.add((self._order_key(key), key))
        self._changed[key] = slot
        self.changed_bytes += entry_bytes(key, slot)

    def _uncharge(self, key: bytes, slot: Slot | None) -> None:
        """A change is out of date, before it was written."""
        self.changed_bytes -= entry_bytes(key, slot)
        self._drop(slot)

    # --- iteration ---------------------------------------------------------------------------------------------------

    async def page(
        self, start: bytes, is_inclusive: bool, count_max: int, bytes_max: int, last: bytes
    ) -> list[PageEntry] | None:
        """As ``KeyIndex.page``."""
        found: list[PageEntry] = []
        size = 0
        while True:
            part, bound = await self._part(start, is_inclusive, min(count_max - len(found), keys_per_turn))
            if self.is_cleared:
                return None
            for entry in part:
                if last and entry[1] > last:
                    return found
                found.append(entry)
                size += record_size(len(entry[1]), entry[2].value_length)
                if len(found) >= count_max or size >= bytes_max:
                    return found
            if bound is None:
                return found
            start, is_inclusive = bound, False
            await asyncio.sleep(0)  # a map whose blocks are in memory never waits

    async def _part(self, start: bytes, is_inclusive: bool, count: int) -> tuple[list[PageEntry], bytes | None]:
        """Some entries as of one moment, and the order key up to which they are all; ``None`` at the end."""
        first = entry_key(start) + (b"" if is_inclusive else b"\0")
        stored = await self._read(lambda: self.table_map.scan(first, count))
        return ([], None) if self.is_cleared else self._merged(start, is_inclusive, count, stored)

    def _merged(
        self, start: bytes, is_inclusive: bool, count: int, stored: list[tuple[bytes, bytes]]
    ) -> tuple[list[PageEntry], bytes | None]:
        places = self._changed_order.irange(minimum=(start, b""))
        changed = list(islice((place for place in places if is_inclusive or place[0] != start), count))
        bound = page_bound(stored, changed, count)
        entries: dict[bytes, tuple[bytes, Slot]] = {}
        for order, data in entries_within(stored, bound):
            key, slot = decode_entry(data, self._table)
            entries[order] = key, self._cached.get(key) or slot
        for order, key in changed:
            live = self.get(key)
            if bound is not None and order > bound:
                break
            if live is None:
                entries.pop(order, None)
            else:
                entries[order] = key, live
        return [(order, *entries[order]) for order in sorted(entries)], bound

    # --- flushes -----------------------------------------------------------------------------------------------------

    def compactable_to(self, indexed_to: int) -> int:
        """The log may be cut below this: what the map does not cover must be read again after a restart."""
        return self.covered

    def wants_flush(self, indexed_to: int) -> bool:
        is_due = (
            len(self._changed) >= flush_keys
            or self.changed_bytes >= flush_bytes
            or indexed_to - self.covered >= flush_log_bytes
        )
        return is_due and not self.table_map.writing.locked()

    def is_full(self, pending_bytes: int) -> bool:
        """Whether updates must wait, with these bytes of others on their way."""
        is_full = len(self._changed) + len(self._flushing) >= changed_keys_max
        return is_full or self.changed_bytes + pending_bytes >= changed_bytes_max

    async def flush(self, indexed_to: Callable[[], int]) -> None:
        """Bring all changes to the map; ``indexed_to`` is the length of the log that the index has now. What a flush
        that fails should have written is written by the next one."""
        async with self.table_map.writing:
            if self.is_cleared:
                return
            totals = Totals(indexed_to(), self._keys, self.live_bytes)
            self._flushing, self._changed = self._changed, {}
            try:
                entries = await self._encode(totals)
                if entries is None:
                    return
                self._check_open()
                await self.table_map.flush(entries)
                failpoint(FLUSHED)
            except BaseException:
                self._take_back()
                raise
            self._flushes += 1
            self.covered = totals.covered
            await self._move_to_cache()

    async def _encode(self, totals: Totals) -> dict[bytes, bytes | None] | None:
        """``None`` if the index was cleared meanwhile."""
        entries: dict[bytes, bytes | None] = {TOTALS_KEY: encode_totals(totals)}
        for number, (key, slot) in enumerate(self._flushing.items(), 1):
            entries[entry_key(self._order_key(key))] = None if slot is None else encode_entry(key, slot)
            if number % keys_per_turn == 0:
                await asyncio.sleep(0)
        return None if self.is_cleared else entries

    def _take_back(self) -> None:
        """Keep as changed what a flush did not write."""
        for key, slot in self._flushing.items():
            if key in self._changed:
                self._uncharge(key, slot)
            else:
                self._changed[key] = slot
        self._flushing = {}

    async def _move_to_cache(self) -> None:
        """The map has what was flushed, and the cache says the same."""
        while self._flushing:
            for key in list(islice(self._flushing, keys_per_turn)):
                slot = self._flushing.pop(key)
                self.changed_bytes -= entry_bytes(key, slot)
                if key in self._cached:
                    self._uncache(key)
                if key in self._changed:
                    self._drop(slot)
                else:
                    self._changed_order.remove((self._order_key(key), key))
                    self._put_in_cache(key, slot)
            self._trim()
            await asyncio.sleep(0)

    def _cache(self, key: bytes, slot: Slot | None) -> None:
        if slot is not None and slot.value is not None:
            if self._budget.take(slot.value_length):
                self._inline_bytes += slot.value_length
            else:
                slot.value = None
        self._put_in_cache(key, slot)

    def _put_in_cache(self, key: bytes, slot: Slot | None) -> None:
        self._cached[key] = slot
        self._cached_bytes += len(key)

    def _uncache(self, key: bytes) -> None:
        self._drop(self._cached.pop(key))
        self._cached_bytes -= len(key)

    def _trim(self) -> None:
        """Let the longest known keys go, but for those that pending updates need."""
        for _ in range(len(self._cached) - cached_keys_max + len(self._pins)):
            if len(self._cached) <= cached_keys_max:
                return
            key = next(iter(self._cached))
            if key in self._pins:
                self._cached.move_to_end(key)
            else:
                self._uncache(key)

    def _drop(self, slot: Slot | None) -> None:
        """The slot is in no layer any more."""
        if slot is not None and slot.value is not None and not self.is_cleared:
            self._budget.give_back(slot.value_length)
            self._inline_bytes -= slot.value_length

    def _decode(self, key: bytes, data: bytes | None) -> Slot | None:
        if data is None:
            return None
        found, slot = decode_entry(data, self._table)
        if found != key:
            raise DataCorruption(f"{self._table}: its index in Tier 2 has {found!r} in the place of {key!r}")
        return slot

    def _check_open(self) -> None:
        if not self.table_map.is_open:
            raise SegmentNotFound(self._table)
