"""Tells the time of day by the machine's clock, where a process must not import what the services' clock does."""

from __future__ import annotations

import time


def system_time_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
