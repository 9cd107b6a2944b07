"""A state of a log for tests of Tier 2 that have no log."""

from __future__ import annotations

from segment_service.contracts.segment_storage import LogState


def some_log() -> LogState:
    return LogState(bytes(range(16)), 0, 1)
