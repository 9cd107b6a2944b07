"""Prints what is logged, and survives an output that takes nothing."""

from __future__ import annotations

import threading

import structlog


class DroppingOutput:
    """Prints records, and drops those that the standard output does not take: it may be a file on a full disk, or a
    pipe that nobody reads any more. What is logged is no part of the work, which would fail with it.

    It makes itself where structlog makes a logger for each record. The next record that is printed is followed by one
    with the number of those that were not; some of them may come late, from the output's own buffer.
    """

    def __init__(self) -> None:
        self._dropped = 0
        self._lock = threading.Lock()

    def __call__(self, *_: object) -> DroppingOutput:
        return self

    def msg(self, message: str) -> None:
        with self._lock:
            try:
                print(message, flush=True)
            except (OSError, ValueError):  # ValueError where it was closed
                self._dropped += 1
                return
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log = structlog.get_logger(service="log")
            log.warning("records may be missing: they could not be written", count=dropped)

    debug = info = warning = error = critical = msg
