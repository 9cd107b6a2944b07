"""Indexes the keys of one table as far as its log was read: in memory, rebuilt from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from sortedcontainers import SortedList

from pravega_common.invariants import check
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.removed_keys import RemovedKeys

value_inline_bytes_max: Final = 4 * 1024
"""Values up to this size stay in memory with their key; larger ones are read from the segment."""
inline_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of values in memory, for all tables of one extension; above it, new values are read from the segment."""
sorted_keys_per_turn: Final = 500
"""Keys that are sorted in one turn of the event loop: two or three milliseconds."""
key_memory_bytes: Final = 350
"""Memory that a live key takes, beside the key itself and an inline value: its record, and its places in order."""


class InlineBudget:
    """Bytes of values that may be kept in memory, shared by all tables."""

    def __init__(self, bytes_max: int = inline_bytes_max) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0

    def take(self, length: int) -> bool:
        if self.bytes_used + length > self.bytes_max:
            return False
        self.bytes_used += length
        return True

    def give_back(self, length: int) -> None:
        self.bytes_used -= length
        check(self.bytes_used >= 0, "more inline bytes given back than taken", length=length)


class Slot:
    """The live record of one key. ``value`` is ``None`` if it must be read from the segment."""

    __slots__ = ("offset", "value", "value_length", "version")

    def __init__(self, version: int, offset: int, value_length: int, value: bytes | None) -> None:
        self.version = version
        self.offset = offset
        self.value_length = value_length
        self.value = value


PageEntry = tuple[bytes, bytes, Slot]
"""The order key of a key, the key, and its live record."""


class KeyIndex:
    """Live keys by key, by offset of their record, and (sorted for the first iteration) in iteration order.

    Changes come in log order. Each costs a logarithm of the number of keys. Only ``sort`` costs in proportion to them,
    once, and gives the loop its turns. Memory: about 350 bytes and the key for each live key, besides inline values.
    """

    def __init__(self, order_key: Callable[[bytes], bytes], budget: InlineBudget) -> None:
        self._order_key = order_key
        self._budget = budget
        self._slots: dict[bytes, Slot] = {}
        self._removed = RemovedKeys()
        self._key_bytes = 0
        """Bytes of the live keys."""
        self._by_offset = SortedList()
        """(offset of the record, key)."""
        self._ordered = SortedList()
        """(order key, key): none before the first iteration, some while they are sorted, then all."""
        self._keeps_order = False
        self._sorting = asyncio.Lock()
        self._inline_bytes = 0
        self.is_ordered = False
        """Whether ``ordered_from`` can be asked."""
        self.live_bytes = 0
        """Bytes of the records of all live keys."""

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def memory_bytes(self) -> int:
        """Memory of the keys, without inline values, which have a budget of their own."""
        return key_memory_bytes * len(self._slots) + self._key_bytes + self._removed.memory_bytes

    def is_resident(self, keys: Iterable[bytes]) -> bool:
        """Whether ``get`` can be asked: always, for everything is in memory."""
        return True

    async def bring(self, keys: Sequence[bytes]) -> None:
        """See to it that the keys are resident."""

    def pin(self, keys: Iterable[bytes]) -> None:
        """Keep the keys resident."""

    def unpin(self, keys: Iterable[bytes]) -> None:
        """Do not care any more."""

    def compactable_to(self, indexed_to: int) -> int:
        """The log may be cut below this."""
        return indexed_to

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, Slot] | None:
        """The live records of those keys that exist; ``None`` if the index was cleared meanwhile."""
        return {key: slot for key in keys if (slot := self._slots.get(key)) is not None}

    def get(self, key: bytes) -> Slot | None:
        return self._slots.get(key)

    def was_removed(self, key: bytes) -> bool:
        """Whether the key was here once, as far as is remembered."""
        return key in self._removed

    def put(self, key: bytes, value: bytes | memoryview, version: int, offset: int) -> None:
        length = len(value)
        is_inline = length <= value_inline_bytes_max and self._budget.take(length)
        slot = Slot(version, offset, length, bytes(value) if is_inline else None)
        self._inline_bytes += length if is_inline else 0
        old = self._slots.get(key)
        self._slots[key] = slot
        self.live_bytes += record_size(len(key), length)
        if old is not None:
            self._release(key, old)
        else:
            self._removed.discard(key)
            self._key_bytes += len(key)
            if self._keeps_order:
                self._ordered.add((self._order_key(key), key))
        self._by_offset.add((offset, key))

    def remove(self, key: bytes) -> None:
        old = self._slots.pop(key, None)
        if old is None:
            return
        self._release(key, old)
        if self._keeps_order:
            self._ordered.discard((self._order_key(key), key))
        self._key_bytes -= len(key)
        self._removed.add(key)

    def clear(self) -> None:
        """Forget everything and give the inline bytes back."""
        self._budget.give_back(self._inline_bytes)
        self._slots, self._ordered, self._by_offset = {}, SortedList(), SortedList()
        self._removed.clear()
        self._keeps_order = self.is_ordered = False
        self.live_bytes = self._inline_bytes = self._key_bytes = 0

    async def sort(self) -> None:
        """Bring the keys into iteration order; they may change meanwhile, and the index may be cleared."""
        async with self._sorting:
            if self.is_ordered:
                return
            ordered, self._keeps_order = self._ordered, True
            keys = list(self._slots)
            for first in range(0, len(keys), sorted_keys_per_turn):
                for key in keys[first : first + sorted_keys_per_turn]:
                    place = (self._order_key(key), key)
                    if key in self._slots and place not in ordered:  # else it was removed, or came again, meanwhile
                        ordered.add(place)
                await asyncio.sleep(0)
                if self._ordered is not ordered:
                    return
            self.is_ordered = True

    async def page(
        self, start: bytes, is_inclusive: bool, count_max: int, bytes_max: int, last: bytes
    ) -> list[PageEntry] | None:
        """Entries in iteration order from an order key on, up to a key ``last`` (if not empty), a number and bytes of
        records; at least one if there is one. ``None`` if the index was cleared meanwhile."""
        ordered = self._ordered
        await self.sort()
        if self._ordered is not ordered:  # also where it was sorted since then, with nothing or other keys in it
            return None
        found: list[PageEntry] = []
        size = 0
        for entry in self.ordered_from(start, is_inclusive):
            if last and entry[1] > last:
                break
            found.append(entry)
            size += record_size(len(entry[1]), entry[2].value_length)
            if len(found) >= count_max or size >= bytes_max:
                break
        return found

    def ordered_from(self, order_key: bytes, is_inclusive: bool) -> Iterator[tuple[bytes, bytes, Slot]]:
        """(order key, key, slot) in iteration order; the index must be sorted, and must not change meanwhile."""
        check(self.is_ordered, "iteration of keys that are not in order")
        for found, key in self._ordered.irange(minimum=(order_key, b"")):
            if is_inclusive or found != order_key:
                yield found, key, self._slots[key]

    def live_from(self, offset: int) -> Iterator[tuple[bytes, Slot]]:
        """Live keys whose record lies at or after ``offset``, in log order; the index must not change meanwhile."""
        for _, key in self._by_offset.irange(minimum=(offset, b"")):
            yield key, self._slots[key]

    def _release(self, key: bytes, slot: Slot) -> None:
        """The slot is not the key's any more."""
        self._by_offset.remove((slot.offset, key))
        self.live_bytes -= record_size(len(key), slot.value_length)
        if slot.value is not None:
            self._budget.give_back(slot.value_length)
            self._inline_bytes -= slot.value_length
