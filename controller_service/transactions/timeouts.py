"""Orders the deadlines of transactions in a heap, without tasks and without a clock."""

from __future__ import annotations

import heapq
import itertools
import uuid
from dataclasses import dataclass
from typing import Final

timers_max: Final = 1_000_000
"""Open transactions that one controller watches; a transaction above it is left to another's or a later sweep."""
timer_slack_max: Final = 1_000
"""Deadlines that were moved or cancelled and are still in the heap, beside as many as count."""


@dataclass(frozen=True, slots=True)
class TimedTransaction:
    scope: str
    stream: str
    id: uuid.UUID


class Timers:
    """Deadlines in seconds of the monotonic clock, and the record version that was seen when each was set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimedTransaction]] = []
        self._current: dict[TimedTransaction, tuple[float, int]] = {}
        self._tickets = itertools.count()

    def __len__(self) -> int:
        return len(self._current)

    @property
    def deadlines(self) -> int:
        """Those that are kept, with those that were moved or cancelled."""
        return len(self._heap)

    def __contains__(self, transaction: TimedTransaction) -> bool:
        return transaction in self._current

    def arm(self, transaction: TimedTransaction, deadline_s: float, version: int) -> bool:
        """Set or move a deadline; False if there are too many already."""
        if transaction not in self._current and len(self._current) >= timers_max:
            return False
        self._current[transaction] = (deadline_s, version)
        heapq.heappush(self._heap, (deadline_s, next(self._tickets), transaction))
        self._drop_old()
        return True

    def cancel(self, transaction: TimedTransaction) -> None:
        self._current.pop(transaction, None)
        self._drop_old()

    def _drop_old(self) -> None:
        """Build the heap again of the deadlines that count, once most do not: each change pays a small part of that."""
        if len(self._heap) > 2 * len(self._current) + timer_slack_max:
            self._heap = [(deadline_s, next(self._tickets), one) for one, (deadline_s, _) in self._current.items()]
            heapq.heapify(self._heap)

    def due(self, now_s: float, count_max: int) -> list[tuple[TimedTransaction, int]]:
        """Take up to ``count_max`` transactions whose deadline has passed, each with the version it was armed with."""
        taken: list[tuple[TimedTransaction, int]] = []
        while self._heap and self._heap[0][0] <= now_s and len(taken) < count_max:
            deadline_s, _, transaction = heapq.heappop(self._heap)
            current = self._current.get(transaction)
            # A moved deadline left its old entry in the heap.
            if current is not None and current[0] == deadline_s:
                del self._current[transaction]
                taken.append((transaction, current[1]))
        return taken
