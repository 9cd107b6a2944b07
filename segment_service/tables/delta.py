"""Selects the entries that a delta read answers."""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.model.table_limits import page_bytes_max, page_entries_max
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.key_index import KeyIndex, Slot


@dataclass(frozen=True, slots=True)
class DeltaSelection:
    """The entries of a delta read."""

    entries: list[tuple[bytes, Slot]]
    should_clear: bool
    reached_end: bool
    last_position: int


def select_delta(index: KeyIndex, start_offset: int, length: int, from_position: int, count_max: int) -> DeltaSelection:
    """Live entries whose record lies at or after ``from_position``, in log order, up to ``count_max`` or a page.

    The page counts live entries, not log records, and is empty only if nothing live follows: a client stops at the
    first empty page (docs/wire-protocol.md 8.1). An entry that a later put replaced appears once, where the later one
    lies, so walking the pages gives every live entry exactly once. ``last_position`` is 0 if nothing was consumed.
    """
    should_clear = from_position < start_offset
    position = max(from_position, start_offset)
    if position >= length:
        return DeltaSelection([], should_clear, True, 0)
    entries: list[tuple[bytes, Slot]] = []
    page_bytes = 0
    for key, slot in index.live_from(position):
        if len(entries) >= min(count_max, page_entries_max) or page_bytes >= page_bytes_max:
            return DeltaSelection(entries, should_clear, False, position)
        entries.append((key, slot))
        size = record_size(len(key), slot.value_length)
        page_bytes += size
        position = slot.offset + size
    return DeltaSelection(entries, should_clear, True, length)
