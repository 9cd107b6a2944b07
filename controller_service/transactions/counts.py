"""Counts what became of transactions, and how long the rounds took that made them readable."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Histogram

TRANSACTIONS: Final = Counter(
    "pravega_controller_transactions", "Transactions that this controller began, made readable or took away", ["event"]
)
BEGUN, COMMITTED, ABORTED = (TRANSACTIONS.labels(event) for event in ("begun", "committed", "aborted"))
ROUND_SECONDS: Final = Histogram(
    "pravega_controller_commit_round_seconds",
    "From the begin of a round of commits, which may be another controller's, to its transactions being readable",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120),
)
