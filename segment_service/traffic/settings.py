"""Defines the times of the watch of traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SHARES: Final = (1.0, 2.5, 5.0, 10.0)
"""The four windows as multiples of the shortest one: 2, 5, 10 and 20 minutes."""


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """The times of the watch of traffic, in seconds; the defaults are Pravega's."""

    is_enabled: bool = True
    tick_s: float = 5.0
    """Rates are computed this often."""
    window_s: float = 120.0
    """The shortest of the windows over which a rate is taken; the others are 2.5, 5 and 10 times as long."""
    cooldown_s: float = 600.0
    """A segment is watched for at least this long before the first report: thus none comes earlier after its
    creation."""
    mute_s: float = 600.0
    """After a report, the next one in the same direction comes no earlier."""
    idle_s: float = 1_200.0
    """A segment without traffic for this long gets a last, silent report, and is watched no more."""

    @property
    def windows_s(self) -> tuple[float, float, float, float]:
        first, second, third, fourth = _SHARES
        window_s = self.window_s
        return first * window_s, second * window_s, third * window_s, fourth * window_s
