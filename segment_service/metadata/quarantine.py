"""Remembers which segments of a container are damaged in Tier 2, and why.

In memory only: what is damaged is found again by the next owner of the container, at its first sight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from pravega_common.errors import SegmentDamaged

recheck_s_default: Final = 60.0
"""Seconds after which damaged bytes are looked at again: an operator may have restored them."""
ranges_max: Final = 64
"""Damaged ranges of one segment that are remembered."""


class DamagedRange(NamedTuple):
    """Bytes that a segment has in Tier 2 under an id, which is another one while a merge is under way."""

    segment_id: int
    offset: int
    length: int


@dataclass(slots=True)
class _Damage:
    name: str
    reason: str
    is_held: bool = False
    """Whether the storage writer holds the segment's operations back."""
    unreadable: dict[DamagedRange, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return not self.is_held and not self.unreadable


class Quarantine:
    """The damaged segments of one container, by id. Their operations are refused; all others go on."""

    def __init__(self, container_id: int) -> None:
        self._damaged: dict[int, _Damage] = {}
        self._log = structlog.get_logger(service=f"container-{container_id}")

    def __len__(self) -> int:
        return len(self._damaged)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Names of segments, each with the reason."""
        for damage in list(self._damaged.values()):
            yield damage.name, damage.reason

    def reason(self, segment_id: int) -> str | None:
        """Why the segment is quarantined; ``None`` if it is not."""
        damage = self._damaged.get(segment_id)
        return None if damage is None else damage.reason

    def check(self, segment_id: int) -> None:
        """``SegmentDamaged`` with the reason for a segment that is quarantined."""
        damage = self._damaged.get(segment_id)
        if damage is not None:
            raise SegmentDamaged(segment_id, f"{damage.name} is quarantined: {damage.reason}")

    # --- found by the storage writer

    def hold(self, segment_id: int, name: str, reason: str) -> None:
        """The storage writer cannot bring the segment's operations to Tier 2."""
        self._add(segment_id, name, reason).is_held = True

    def free(self, segment_id: int) -> None:
        """The storage writer goes on with the segment."""
        damage = self._damaged.get(segment_id)
        if damage is not None:
            damage.is_held = False
            self._lift_if_over(segment_id, damage)

    @property
    def is_holding(self) -> bool:
        """Whether the storage writer holds any segment."""
        return any(damage.is_held for damage in self._damaged.values())

    def held_reason(self, segment_id: int) -> str | None:
        """Why the storage writer holds the segment; ``None`` if it does not."""
        damage = self._damaged.get(segment_id)
        return damage.reason if damage is not None and damage.is_held else None

    # --- found by readers

    def add_unreadable(self, segment_id: int, name: str, stored: DamagedRange, reason: str) -> None:
        """Bytes that the segment has in Tier 2, maybe under another id, cannot be read."""
        damage = self._add(segment_id, name, reason)
        if len(damage.unreadable) < ranges_max:
            damage.unreadable[stored] = reason

    def remove_unreadable(self, segment_id: int, stored: DamagedRange) -> None:
        """The bytes can be read again, or nobody needs them any more."""
        damage = self._damaged.get(segment_id)
        if damage is not None:
            damage.unreadable.pop(stored, None)
            self._lift_if_over(segment_id, damage)

    def unreadable(self) -> list[tuple[int, DamagedRange]]:
        """All ranges that could not be read, with the ids of their segments."""
        return [(segment_id, stored) for segment_id, damage in self._damaged.items() for stored in damage.unreadable]

    def unreadable_reason(self, segment_id: int) -> str | None:
        """Why bytes of the segment cannot be read; ``None`` if none are known that cannot."""
        damage = self._damaged.get(segment_id)
        return next(iter(damage.unreadable.values()), None) if damage is not None else None

    def forget(self, segment_id: int) -> None:
        """The segment is gone."""
        self._damaged.pop(segment_id, None)

    def _add(self, segment_id: int, name: str, reason: str) -> _Damage:
        damage = self._damaged.get(segment_id)
        if damage is None:
            damage = self._damaged[segment_id] = _Damage(name, reason)
            self._log.error("segment is quarantined", segment=name, segment_id=segment_id, reason=reason)
        return damage

    def _lift_if_over(self, segment_id: int, damage: _Damage) -> None:
        if damage.is_over:
            del self._damaged[segment_id]
            self._log.info("segment is whole again", segment=damage.name, segment_id=segment_id)
