"""Reads what a streaming query reported of its batches."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pravega_spark.progress import Lag, lag, parsed


@dataclass(frozen=True, slots=True)
class Report:
    """One progress of a query."""

    at_s: float
    """Seconds since 1970."""
    batch_id: int
    rows_per_s: float
    batch_s: float
    lag: Lag | None


def read_reports(progresses: Iterable[Any]) -> Sequence[Report]:
    """The reports in ``query.recentProgress`` (objects, dictionaries or JSON) in their order."""
    return [_report(item) for item in map(parsed, progresses) if "timestamp" in item]


def _report(progress: Any) -> Report:
    at = datetime.datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00"))
    took_ms = progress.get("batchDuration") or progress.get("durationMs", {}).get("triggerExecution", 0)
    rows_per_s = progress.get("processedRowsPerSecond") or 0.0
    return Report(at.timestamp(), int(progress.get("batchId", -1)), float(rows_per_s), took_ms / 1000, lag(progress))
