"""Averages the traffic of one segment over four windows, and decides whether it is hot or cold. No I/O, no clock."""

from __future__ import annotations

import math
from typing import Final

from segment_service.traffic.settings import TrafficSettings

hot_factors: Final = (5.0, 2.0, 1.0)
"""A segment is hot if its rate over the shortest window is above 5 times the target, over the next above twice the
target, or over the third above the target, as in Pravega."""
cold_share: Final = 0.5
"""A cold segment is below the target over the three shorter windows, and below this share of it over the longest."""
splits_min: Final = 2


class TrafficRates:
    """Exponentially weighted averages, in units a second.

    While a segment was watched for less than a window, its average is the plain mean: one burst at the beginning does
    not count for more than it is. A window counts only once the segment was watched for that long.
    """

    __slots__ = ("_rates", "_settings", "_windows_s", "age_s")

    def __init__(self, settings: TrafficSettings) -> None:
        self._settings = settings
        self._windows_s = settings.windows_s
        self._rates = [0.0, 0.0, 0.0, 0.0]
        self.age_s = 0.0
        """How long the segment was watched."""

    @property
    def rates(self) -> tuple[float, ...]:
        """The four averages, the one over the shortest window first."""
        return tuple(self._rates)

    def add(self, amount: float, duration_s: float) -> None:
        """Add the units that came in the last ``duration_s`` seconds."""
        self.age_s += duration_s
        present = amount / duration_s
        for index, window_s in enumerate(self._windows_s):
            weight = max(-math.expm1(-duration_s / window_s), duration_s / self.age_s)
            self._rates[index] += weight * (present - self._rates[index])

    def splits(self, target: float) -> int:
        """The number of segments that would carry the traffic at the target rate each; 0 if the segment is not hot."""
        if self.age_s <= self._settings.cooldown_s:
            return 0
        windows = zip(self._rates, hot_factors, self._windows_s, strict=False)
        if not any(rate > factor * target and self.age_s > window_s for rate, factor, window_s in windows):
            return 0
        return max(splits_min, int(max(self._rates[:3]) / target))

    def is_cold(self, target: float) -> bool:
        """Whether the segment could be merged with another one like it."""
        return (
            self.age_s > max(self._settings.cooldown_s, self._windows_s[3])
            and max(self._rates[:3]) < target
            and self._rates[3] < cold_share * target
        )
