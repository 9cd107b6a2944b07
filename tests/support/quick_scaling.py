"""Gives a standalone times of automatic scaling that a test can wait for."""

from __future__ import annotations

from typing import Final

QUICK_SCALING: Final = {
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__TICK_MS": "200",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__WINDOW_MS": "1000",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__COOLDOWN_MS": "1500",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__MUTE_MS": "1500",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__IDLE_MS": "3000",
    "PRAVEGA_CONTROLLER_AUTO_SCALE__COOLDOWN_MS": "1000",
    "PRAVEGA_CONTROLLER_AUTO_SCALE__REPORT_VALID_MS": "20000",
}
"""Environment variables: rates over 1, 2.5, 5 and 10 seconds; a segment is idle after 3."""
