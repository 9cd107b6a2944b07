"""Defines the figures of a segment store's work that travel with its lease, for people who look at a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from pravega_common.errors import DataCorruption


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """The work and the fill of one store at one time; counters begin with its process.

    A fixed number of integers, so that a lease costs the same whatever the store has.
    """

    at_ms: int
    """The store's clock, milliseconds since 1970."""
    logged_bytes: int
    """Counter: bytes of frames made durable in Tier 1; containers that move away take theirs along."""
    read_bytes: int
    """Counter: bytes of segments sent to readers."""
    tier2_put_bytes: int
    """Counter: bytes put to Tier 2."""
    unflushed_bytes: int
    """Accepted and not in Tier 2; above ``unflushed_bytes_max`` appends wait."""
    unflushed_bytes_max: int
    tier1_used_bytes: int
    """Memory of the fullest Redis server of Tier 1; 0 for both where Tier 1 has no such server."""
    tier1_bytes_max: int
    """Its limit; 0 for none."""
    cache_bytes: int
    cache_bytes_max: int
    connections: int

    def to_payload(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Figures that a newer version adds are passed over; ``DataCorruption`` for one that is missing or no count."""
        values = {item.name: payload.get(item.name) for item in fields(cls)}
        for name, value in values.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise DataCorruption(f"the load of a store has {name} {value!r}, which must be a count")
        return cls(**{name: int(value or 0) for name, value in values.items()})
