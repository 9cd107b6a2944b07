"""Computes how much of a call's time is left."""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in monotonic time by which a call must have ended."""

    clock: Clock
    at_s: float

    @classmethod
    def after(cls, clock: Clock, timeout_s: float) -> Deadline:
        return cls(clock, clock.monotonic_s() + timeout_s)

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.at_s - self.clock.monotonic_s())

    @property
    def expired(self) -> bool:
        return self.clock.monotonic_s() >= self.at_s
