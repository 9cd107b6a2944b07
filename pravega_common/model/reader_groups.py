"""Defines reader groups as the controller registers them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ReaderGroupRetention(enum.IntEnum):
    """The moment at which a group's position frees data: never, on request, at its last checkpoint."""

    NONE = 0
    MANUAL = 1
    AUTOMATIC = 2


@dataclass(frozen=True, slots=True)
class GroupRegistration:
    """A reader group that the controller knows as a subscriber of its streams."""

    scope: str
    group: str
    group_id: str
    """UUID in its text form."""
    generation: int
    retention: ReaderGroupRetention

    @property
    def subscriber(self) -> str:
        return f"{self.scope}/{self.group}"
