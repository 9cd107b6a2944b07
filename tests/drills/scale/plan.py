"""Describes a drill: the events written, the scalings meanwhile, the limits of reading."""

from __future__ import annotations

from dataclasses import dataclass

filler = "abcdefghijklmnopqrstuvwxyz" * 4
number_digits = 12
header_bytes = 8


@dataclass(frozen=True)
class Change:
    """A scaling to ``segments`` equal key ranges once the share ``at`` of the events is written."""

    at: float
    segments: int


@dataclass(frozen=True)
class Plan:
    """Event ``n`` has key ``n % keys``; the events of a key are numbered upwards, so their order can be seen."""

    events: int
    events_per_batch: int
    """Limit of the writing query."""
    events_per_trigger: int
    """Limit of the reading query, in all its runs."""
    bytes_per_trigger: int
    """One more limit of its last run, over all that is left."""
    keys: int = 1_000
    event_bytes: int = 100
    segments: int = 2
    """At first. Fewer than these a stream never gets."""
    changes: tuple[Change, ...] = (Change(0.15, 6), Change(0.35, 3), Change(0.6, 8), Change(0.8, 2))
    live_until: float = 0.45
    """The reading query is stopped when it has this share, and goes on when everything is written."""

    @classmethod
    def of(cls, events: int) -> Plan:
        """Some forty batches written, and never tiny ones; limits that end inside of what one of them wrote."""
        per_batch = max(10_000, events // 40)
        per_trigger = per_batch * 3 // 5
        return cls(events, per_batch, per_trigger, per_trigger * 80)

    @property
    def batches(self) -> int:
        return -(-self.events // self.events_per_batch)

    @property
    def stored_bytes(self) -> int:
        return self.events * (self.event_bytes + header_bytes)

    @property
    def text_after_number(self) -> str:
        return filler[: self.event_bytes - number_digits]
