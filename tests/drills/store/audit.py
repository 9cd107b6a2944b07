"""Compares what writers were promised and readers saw with what a stream holds in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class EventId(NamedTuple):
    """One event of a drill; an event's bytes are its text and padding that follows from it."""

    writer: str
    key: str
    number: int
    """Grows within a writer."""
    transaction: int = -1
    """Which transaction of the writer it is in; -1 for none."""

    def encode(self) -> bytes:
        text = f"{self.writer}|{self.key}|{self.number}|{self.transaction}|"
        return text.encode().ljust(event_bytes, b".")

    @classmethod
    def decode(cls, data: bytes) -> EventId | None:
        """``None`` for bytes that no writer of the drill wrote."""
        parts = data.split(b"|")
        try:
            found = cls(parts[0].decode(), parts[1].decode(), int(parts[2]), int(parts[3]))
        except (ValueError, IndexError):
            return None
        return found if found.encode() == data else None


event_bytes = 200


@dataclass
class Promises:
    """What one writer asked for and was promised."""

    writer: str
    written: set[EventId] = field(default_factory=set)
    acked: set[EventId] = field(default_factory=set)
    transactions: dict[int, set[EventId]] = field(default_factory=dict)
    """The events of each transaction that was to be committed."""
    committed: set[int] = field(default_factory=set)


@dataclass
class Tally:
    """Counts of one run; all but the first are wrong if they are above 0."""

    acked: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    phantom: int = 0
    """Events that nobody wrote, or with other bytes."""
    torn: int = 0
    """Transactions of which a part is there."""
    unseen: int = 0
    """Events that a reader saw and that are not there, or elsewhere, in the end."""

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.phantom or self.torn or self.unseen)

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


Contents = Mapping[int, Sequence[bytes]]
"""The events of each segment, in order."""


def audit(contents: Contents, promises: Iterable[Promises], seen: Iterable[Contents]) -> Tally:
    """The counts of a run. ``seen``: what each reader read, as far as it came."""
    tally = Tally()
    events = [EventId.decode(data) for segment in sorted(contents) for data in contents[segment]]
    counts = Counter(event for event in events if event is not None)
    known: set[EventId] = set()
    for promise in promises:
        known |= promise.written
        tally.acked += len(promise.acked)
        tally.lost += sum(counts[event] == 0 for event in promise.acked)
        tally.torn += sum(
            0 < sum(counts[event] > 0 for event in wanted) < len(wanted) for wanted in promise.transactions.values()
        )
        tally.lost += sum(counts[event] == 0 for number in promise.committed for event in promise.transactions[number])
        tally.acked += sum(len(promise.transactions[number]) for number in promise.committed)
    tally.duplicated = sum(count - 1 for count in counts.values())
    tally.phantom = events.count(None) + sum(event not in known for event in counts)
    tally.out_of_order = _out_of_order(events)
    for view in seen:
        tally.unseen += sum(
            1
            for segment, events_seen in view.items()
            for at, data in enumerate(events_seen)
            if at >= len(contents.get(segment, ())) or contents[segment][at] != data
        )
    return tally


def _out_of_order(events: Iterable[EventId | None]) -> int:
    """Events of a key that come after a later one of the same writer."""
    last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    wrong = 0
    for event in events:
        if event is not None:
            place = (event.writer, event.key)
            wrong += event.number < last[place]
            last[place] = max(last[place], event.number)
    return wrong
