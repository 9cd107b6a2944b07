"""Finds the operations that Tier 1 need not keep: all up to the first that is not in Tier 2."""

from __future__ import annotations

from pravega_common.invariants import check


class AckCalculator:
    """The highest sequence number all of whose predecessors, and itself, are in Tier 2. It never goes back."""

    def __init__(self) -> None:
        self.last_read = 0
        """Every operation up to this one was taken from the log."""
        self.acknowledged = 0

    def read(self, sequence_number: int) -> None:
        check(sequence_number > self.last_read, "operations out of order", last=self.last_read, next=sequence_number)
        self.last_read = sequence_number

    def highest(self, first_waiting: int | None) -> int:
        """Given the smallest number that waits in any segment (``None``: nothing waits)."""
        lowest = self.last_read + 1 if first_waiting is None else first_waiting
        check(lowest > self.acknowledged, "an acknowledged operation waits", lowest=lowest, acked=self.acknowledged)
        return lowest - 1
