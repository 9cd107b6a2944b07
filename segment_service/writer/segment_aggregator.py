"""Gathers what one segment still has to bring to Tier 2, and decides the next step. A state machine without I/O.

Operations come in log order (``append``, ``seal``, ``truncate``, ``merge``, ``delete``), ``next_step`` says what to do
now, and ``reconciled``, ``written``, ``join``, ``finished`` and so on say what was done. The state of the segment in
Tier 2 is *unknown* at first and after every failure; then the next step is to ask.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sortedcontainers import SortedList

from pravega_common.errors import SegmentDamaged
from pravega_common.invariants import check
from segment_service.contracts.segment_storage import StorageState, write_bytes_max


@dataclass(slots=True)
class Source:
    """A merged segment whose bytes are part of a ``Data`` of its target."""

    target_id: int
    source_id: int
    in_storage: bool
    """Whether Tier 2 has something under the source's own id, to be deleted when the target has the bytes."""
    sequence: int
    """That of the merge."""


@dataclass(slots=True)
class Data:
    """Bytes [start, end) of the segment, in the cache."""

    sequence: int
    """Lowest sequence number that is in Tier 2 only once these bytes are."""
    last_sequence: int
    """Highest one: that of the append, or of the merge."""
    start: int
    end: int
    since_s: float
    log_position: int
    sources: tuple[Source, ...] = ()


@dataclass(slots=True)
class Sealing:
    sequence: int
    since_s: float
    log_position: int


@dataclass(slots=True)
class Truncation:
    sequence: int
    since_s: float
    log_position: int
    offset: int


@dataclass(slots=True)
class Merging:
    """A merge of a source that is, or may be, in Tier 2 under its own id."""

    sequence: int
    since_s: float
    log_position: int
    source_id: int
    offset: int
    length: int


@dataclass(slots=True)
class Deletion:
    sequence: int
    """Lowest sequence number that need not come to Tier 2 any more."""
    last_sequence: int
    """That of the deletion."""
    since_s: float
    log_position: int
    sources: tuple[Source, ...]
    """Merged segments that end with this one."""


Item = Data | Sealing | Truncation | Merging | Deletion


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask Tier 2 what it has."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Bytes up to ``offset`` were truncated before they were written: Tier 2 skips them."""

    offset: int


@dataclass(frozen=True, slots=True)
class Write:
    """Put bytes [start, end) at the end of the segment."""

    start: int
    end: int
    sequence: int
    """The last operation that brought some of them."""


Step = Reconcile | Skip | Write | Sealing | Truncation | Merging | Deletion


def _ignore(segment_id: int) -> None:
    """Nobody wants to know."""


class SegmentAggregator:
    """One segment. ``stored`` is its state in Tier 2 (``None``: nothing there), valid while ``is_known``."""

    def __init__(
        self,
        segment_id: int,
        *,
        is_new: bool,
        is_transaction: bool = False,
        is_index: bool = False,
        on_change: Callable[[int], None] = _ignore,
    ) -> None:
        """``is_new``: created by this owner of the container, so Tier 2 cannot have anything of it. ``on_change`` is
        called with the segment id after each change of what waits here."""
        self.segment_id = segment_id
        self.is_transaction = is_transaction
        self.is_index = is_index
        self.is_known = is_new
        self.stored: StorageState | None = None
        self.is_busy = False
        """A flush is under way."""
        self.lock = asyncio.Lock()
        """Held while steps are done."""
        self.pending_bytes = 0
        self.merging_count = 0
        self.is_deleting = False
        self.held_until_s = -math.inf
        """Damage in Tier 2 keeps its operations from being done; they are tried again at this time."""
        self.held_segments: set[int] = set()
        """Segments that are quarantined until that went well: this one, and a source whose merge waits here."""
        self.ended: deque[tuple[int, Source]] = deque()
        """Merged segments whose bytes Tier 2 has as part of this one, with the sequence number that waits until the
        container is notified; ``ended_first`` then takes them off."""
        self._items: deque[Item] = deque()
        self._joined: SortedList | None = None
        """The sequence numbers of data that joined from elsewhere, once for each source that is not done with: they may
        be lower than those before them. ``None`` before the first."""
        self._on_change = on_change

    # --- what must be done, in log order

    @property
    def is_idle(self) -> bool:
        return not self._items and not self.ended

    @property
    def oldest(self) -> Item | None:
        return self._items[0] if self._items else None

    @property
    def mergings(self) -> list[Merging]:
        return [item for item in self._items if isinstance(item, Merging)] if self.merging_count else []

    @property
    def first_sequence(self) -> int | None:
        """Smallest sequence number that waits here. Items are in order but for those that joined from elsewhere."""
        first = self._items[0].sequence if self._items else None
        if not self._joined:
            return first
        joined = int(self._joined[0])
        return joined if first is None else min(first, joined)

    @property
    def stored_length(self) -> int:
        return self.stored.length if self.stored is not None else 0

    @property
    def can_be_joined(self) -> bool:
        """Whether all bytes are certainly in the cache, and nothing in Tier 2."""
        return self.is_known and self.stored is None and not self.is_busy and not self.merging_count

    def append(self, sequence: int, offset: int, length: int, now_s: float, log_position: int) -> None:
        if length:
            self._add_data(Data(sequence, sequence, offset, offset + length, now_s, log_position))

    def seal(self, sequence: int, now_s: float, log_position: int) -> None:
        self._add(Sealing(sequence, now_s, log_position))

    def truncate(self, sequence: int, offset: int, now_s: float, log_position: int) -> None:
        self._add(Truncation(sequence, now_s, log_position, offset))

    def merge(self, merging: Merging, source: SegmentAggregator) -> None:
        """Take the source's bytes as own ones if they are all cached, else move them in Tier 2 when it comes to it."""
        if source.can_be_joined:
            self._add_data(self._joined_data(merging, source))
        else:
            self.merging_count += 1
            self._add(merging)

    def delete(self, sequence: int, now_s: float, log_position: int) -> None:
        """Drop all that waits; the segments merged into this one end with it."""
        first = self.first_sequence
        sources = self.merged_sources()
        self.ended.clear()
        self._items.clear()
        self._joined = None
        self.pending_bytes = self.merging_count = 0
        self.is_deleting = True
        self.held_until_s = -math.inf
        lowest = sequence if first is None else min(first, sequence)
        self._add(Deletion(lowest, sequence, now_s, log_position, tuple(sources)))

    def merged_sources(self) -> list[Source]:
        """The segments merged into this one that Tier 2 may still have under their own ids."""
        sources = [source for _, source in self.ended]
        for item in self._items:
            if isinstance(item, Data):
                sources.extend(replace(source, in_storage=True) for source in item.sources)
            elif isinstance(item, Merging):
                sources.append(Source(self.segment_id, item.source_id, in_storage=True, sequence=item.sequence))
            elif isinstance(item, Deletion):
                sources.extend(item.sources)
        return sources

    # --- what to do now

    def next_step(self, start_offset: int) -> Step | None:
        """The next step after ``settle``; ``start_offset`` is the committed one, which may be ahead."""
        if not self._items:
            return None
        head = self._items[0]
        if not self.is_known and not isinstance(head, Deletion):  # what is damaged can be deleted
            return Reconcile()
        if not isinstance(head, Data):
            return head
        check(head.start <= self.stored_length < head.end, "aggregator is not settled", item=head, stored=self.stored)
        if start_offset > self.stored_length:
            # Not beyond what was read from the log: a merge that comes may have its bytes in Tier 2.
            return Skip(min(_contiguous_end(self._items, start_offset)[0], start_offset))
        limit = self.stored_length + write_bytes_max
        end, sequence = _contiguous_end(self._items, limit, is_whole=True)
        return Write(self.stored_length, min(end, limit), sequence)

    def settle(self) -> None:
        """Drop what Tier 2 has; merged segments that are now part of this one there move to ``ended``."""
        while self.is_known and self._items:
            item = self._items[0]
            if isinstance(item, Data):
                if item.start > self.stored_length:
                    raise SegmentDamaged(
                        self.segment_id,
                        f"segment {self.segment_id}: Tier 2 ends at {self.stored_length}, "
                        f"the log begins at {item.start}",
                    )
                if item.end > self.stored_length:
                    return
                self.ended.extend((item.sequence, source) for source in item.sources)
            elif not self._is_done(item):
                return
            self._pop()

    # --- what was done

    def reconciled(self, state: StorageState | None) -> None:
        self.is_known = True
        self.stored = state

    def uncertain(self) -> None:
        """A step failed: what Tier 2 has must be asked."""
        self.is_known = False

    def written(self, end: int) -> None:
        start = self.stored.start_offset if self.stored is not None else 0
        self.stored = StorageState(self.segment_id, start, end, is_sealed=False)

    def skipped(self, offset: int) -> None:
        self.stored = StorageState(self.segment_id, offset, max(offset, self.stored_length), is_sealed=False)

    def finished(self, item: Sealing | Truncation | Merging | Deletion) -> None:
        """The item's step was done. It may be gone already: a deletion that came meanwhile replaced it."""
        if isinstance(item, Sealing) and self.stored is not None:
            self.stored = replace(self.stored, is_sealed=True)
        elif isinstance(item, Truncation) and self.stored is not None:
            self.stored = replace(self.stored, start_offset=max(item.offset, self.stored.start_offset))
        elif isinstance(item, Merging):
            self.written(max(self.stored_length, item.offset + item.length))
        elif isinstance(item, Deletion):
            self.stored = None
        if self._items and self._items[0] is item:
            self._pop()

    def ended_first(self) -> None:
        """The container was notified of the first of ``ended``."""
        sequence, _ = self.ended.popleft()
        if self._joined is not None:
            self._joined.remove(sequence)
        self._on_change(self.segment_id)

    def join(self, merging: Merging, source: SegmentAggregator) -> None:
        """A merge that waits here turned out to be one of cached bytes."""
        for position, item in enumerate(self._items):
            if item is merging:
                data = self._joined_data(merging, source)
                self._items[position] = data
                self.merging_count -= 1
                self._note_data(data)
                self._on_change(self.segment_id)
                return

    # --- inside

    def _joined_data(self, merging: Merging, source: SegmentAggregator) -> Data:
        """The merge as bytes of this segment. What waited in the source waits here now."""
        first = source.first_sequence
        inner = [source for item in source._items if isinstance(item, Data) for source in item.sources]
        in_storage = source.stored is not None
        own = Source(self.segment_id, merging.source_id, in_storage, merging.sequence)
        return Data(
            sequence=merging.sequence if first is None else min(first, merging.sequence),
            last_sequence=merging.sequence,
            start=merging.offset,
            end=merging.offset + merging.length,
            since_s=merging.since_s,
            log_position=source._items[0].log_position if source._items else merging.log_position,
            sources=(*inner, own),
        )

    def _add_data(self, data: Data) -> None:
        self._note_data(data)
        self._add(data)

    def _note_data(self, data: Data) -> None:
        self.pending_bytes += data.end - data.start
        if data.sources:
            self._joined = self._joined if self._joined is not None else SortedList()
            self._joined.update(data.sequence for _ in data.sources)

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self._on_change(self.segment_id)

    def _pop(self) -> None:
        item = self._items.popleft()
        if isinstance(item, Data):
            self.pending_bytes -= item.end - item.start
        elif isinstance(item, Merging):
            self.merging_count -= 1
        self._on_change(self.segment_id)

    def _is_done(self, item: Item) -> bool:
        """Whether Tier 2 is already as the item wants it, without a step."""
        if isinstance(item, Sealing):
            return self.stored is not None and self.stored.is_sealed
        if isinstance(item, Truncation):
            return not item.offset  # one that was found may go back: the step makes sure that it stays
        return False


def _contiguous_end(items: Iterable[Item], limit: int, *, is_whole: bool = False) -> tuple[int, int]:
    """The end of the first data that reaches the limit, or of the last at the head, and the last operation that brought
    some of all up to there. ``is_whole``: of the last that does not go beyond the limit, if there is one."""
    end = sequence = -1
    for item in items:
        if not isinstance(item, Data) or (end >= 0 and item.start != end):
            break
        if is_whole and end >= 0 and item.end > limit:
            break  # an append that is in Tier 2 in part would be a torn event there, or no record of a table
        end, sequence = item.end, max(sequence, item.last_sequence)
        if end >= limit:
            break
    return end, sequence
