"""Remembers which segments of a container have no entry, or an old one, in the container's metadata table.

A state machine without I/O. An append is not noted by itself: its bytes go to Tier 2, and that is. So a segment that is
noted nowhere, all of whose bytes are in Tier 2, is in the table as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pravega_common.invariants import check
from segment_service.contracts.segment_metadata import SegmentMetadata

changes_max: Final = 2_000
"""Changed segments that are worth a flush, however young they are."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The changes that one flush takes to the table."""

    changed: dict[int, None] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    """Names by id."""


class TableChanges:
    """Changed segments by id, and those that are gone and of which the table may have an entry."""

    def __init__(self) -> None:
        self.knows_table = False
        """Whether ``in_table`` of every segment is known to be right: not while a log is replayed."""
        self.flushes = 0
        """How often the table got what was taken."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is something to flush, and when there is much."""
        self._changed: dict[int, None] = {}
        self._gone: dict[int, str] = {}
        self._gone_names: dict[str, int] = {}
        """How many ids of each name are gone, those that were taken too."""
        self._taken = Taken()

    def __len__(self) -> int:
        return len(self._changed) + len(self._gone)

    def note(self, segment_id: int) -> None:
        """Something of the segment changed that its entry should have."""
        self._changed[segment_id] = None
        count = len(self._changed)
        if count == 1 or count == changes_max:
            self.on_change()

    def note_gone(self, segment: SegmentMetadata) -> None:
        """The segment was deleted or merged away."""
        self._changed.pop(segment.segment_id, None)
        if segment.in_table or not self.knows_table:
            self._add_gone(segment.segment_id, segment.name)

    def add_gone(self, segment_id: int, name: str) -> None:
        """A checkpoint says that the segment is gone and that the table may have an entry of it."""
        if segment_id not in self._gone:
            self._add_gone(segment_id, name)

    def _add_gone(self, segment_id: int, name: str) -> None:
        self._gone[segment_id] = name
        self._gone_names[name] = self._gone_names.get(name, 0) + 1
        self.on_change()

    def keep_gone(self, kept: Container[int]) -> None:
        """A later checkpoint says of which segments the table may still have an entry: of these alone."""
        for segment_id in [one for one in self._gone if one not in kept]:
            self._removed(self._gone.pop(segment_id))

    def is_gone(self, name: str) -> bool:
        """Whether the table may have an entry of a segment of this name that is gone."""
        return name in self._gone_names

    def is_gone_id(self, segment_id: int) -> bool:
        """Whether the table may have an entry of this segment, which is gone."""
        return segment_id in self._gone or segment_id in self._taken.gone

    def is_clean(self, segment_id: int) -> bool:
        """Whether nothing noted of the segment is missing from the table."""
        return segment_id not in self._changed and segment_id not in self._taken.changed

    def gone(self) -> Iterator[tuple[int, str]]:
        """Ids and names of the segments that are gone and not yet removed from the table."""
        yield from self._taken.gone.items()
        yield from self._gone.items()

    def take(self, count_max: int) -> Taken:
        """Changes for one flush, the longest waiting first: the segments that are gone before those of their names
        that came later. ``stored`` or ``failed`` follows."""
        check(not self._taken.changed and not self._taken.gone, "two flushes of the metadata table at once")
        gone = dict(islice(self._gone.items(), count_max))
        changed = dict.fromkeys(islice(self._changed, count_max - len(gone)))
        for segment_id in gone:
            del self._gone[segment_id]
        for segment_id in changed:
            del self._changed[segment_id]
        self._taken = Taken(changed, gone)
        return self._taken

    def stored(self) -> None:
        """The table has what was taken."""
        for name in self._taken.gone.values():
            self._removed(name)
        self._taken = Taken()
        self.flushes += 1

    def _removed(self, name: str) -> None:
        count = self._gone_names[name] - 1
        if count:
            self._gone_names[name] = count
        else:
            del self._gone_names[name]

    def failed(self) -> None:
        """The table may not have what was taken: it waits again, in front."""
        self._changed = {**self._taken.changed, **self._changed}
        self._gone = {**self._taken.gone, **self._gone}
        self._taken = Taken()
