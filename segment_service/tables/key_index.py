"""Indexes the keys of one table as far as its log was read: in memory, rebuilt from the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from sortedcontainers import SortedList

from pravega_common.invariants import check
from segment_service.tables.entry_serializer import record_size

value_inline_bytes_max: Final = 4 * 1024
"""Values up to this size stay in memory with their key; larger ones are read from the segment."""
inline_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of values in memory, for all tables of one extension; above it, new values are read from the segment."""
removed_keys_max: Final = 10_000
"""Removed keys that are remembered for each table, to answer a conditional update of one with ``BadKeyVersion``."""


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


class KeyIndex:
    """Live keys by key, by offset of their record, and (built on first use) in iteration order.

    Changes come in log order. Memory: about 250 bytes and the key for each live key, besides the inline values.
    """

    def __init__(self, order_key: Callable[[bytes], bytes], budget: InlineBudget) -> None:
        self._order_key = order_key
        self._budget = budget
        self._slots: dict[bytes, Slot] = {}
        self._removed: OrderedDict[bytes, None] = OrderedDict()
        self._ordered: SortedList | None = None
        self._log_offsets: list[int] = []
        self._log_keys: list[bytes] = []
        self.live_bytes = 0
        """Bytes of the records of all live keys."""

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: bytes) -> Slot | None:
        return self._slots.get(key)

    def was_removed(self, key: bytes) -> bool:
        """Whether the key was here once, as far as is remembered."""
        return key in self._removed

    def put(self, key: bytes, value: bytes | memoryview, version: int, offset: int) -> None:
        length = len(value)
        is_inline = length <= value_inline_bytes_max and self._budget.take(length)
        slot = Slot(version, offset, length, bytes(value) if is_inline else None)
        old = self._slots.get(key)
        self._slots[key] = slot
        self.live_bytes += record_size(len(key), length)
        if old is not None:
            self._release(key, old)
        else:
            self._removed.pop(key, None)
            if self._ordered is not None:
                self._ordered.add((self._order_key(key), key))
        self._log_offsets.append(offset)
        self._log_keys.append(key)
        if len(self._log_keys) > 2 * len(self._slots) + 1_000:
            self._compact_log()

    def remove(self, key: bytes) -> None:
        old = self._slots.pop(key, None)
        if old is None:
            return
        self._release(key, old)
        if self._ordered is not None:
            self._ordered.remove((self._order_key(key), key))
        self._removed[key] = None
        if len(self._removed) > removed_keys_max:
            self._removed.popitem(last=False)

    def clear(self) -> None:
        """Forget everything and give the inline bytes back."""
        for key, slot in self._slots.items():
            self._release(key, slot)
        self._slots, self._ordered = {}, None
        self._log_offsets, self._log_keys = [], []
        self._removed.clear()

    def ordered_from(self, order_key: bytes, is_inclusive: bool) -> Iterator[tuple[bytes, bytes, Slot]]:
        """(order key, key, slot) in iteration order; the index must not change meanwhile."""
        if self._ordered is None:
            self._ordered = SortedList((self._order_key(key), key) for key in self._slots)
        for found, key in self._ordered.irange(minimum=(order_key, b"")):
            if is_inclusive or found != order_key:
                yield found, key, self._slots[key]

    def live_from(self, offset: int) -> Iterator[tuple[bytes, Slot]]:
        """Live keys whose record lies at or after ``offset``, in log order; the index must not change meanwhile."""
        for position in range(bisect_left(self._log_offsets, offset), len(self._log_keys)):
            key = self._log_keys[position]
            slot = self._slots.get(key)
            if slot is not None and slot.offset == self._log_offsets[position]:
                yield key, slot

    def _release(self, key: bytes, slot: Slot) -> None:
        self.live_bytes -= record_size(len(key), slot.value_length)
        if slot.value is not None:
            self._budget.give_back(slot.value_length)

    def _compact_log(self) -> None:
        live = list(self.live_from(0))
        self._log_offsets = [slot.offset for _, slot in live]
        self._log_keys = [key for key, _ in live]
