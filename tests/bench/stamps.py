"""Finds the micro-batch that took an event: positions of events against the ends of batches.

Both stores give an event a position within a partition (a segment, a Kafka partition), and both connectors report with
every batch where it ended in each. A batch took what lies between its predecessor's end and its own.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

STAMP: Final = struct.Struct(">d")
"""Seconds since 1970, the first bytes of an event: when it was due at the writer."""


def stamped(time_s: float, size_bytes: int) -> bytes:
    """An event of this size that begins with its stamp."""
    return STAMP.pack(time_s).ljust(size_bytes, b"x")


def stamp_of(event: bytes | bytearray) -> float:
    return float(STAMP.unpack_from(event)[0])


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The time at which a micro-batch was over (its commit included), and its end in each partition."""

    time_s: float
    positions: Mapping[int, int]


def batch_time_s(progress: Mapping[str, Any]) -> float:
    """The end of a batch by its progress: the start of the trigger and how long it took."""
    started_s = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return started_s + float(progress["durationMs"]["triggerExecution"]) / 1000


def joined(events: Iterable[tuple[int, int, float]], batches: Sequence[BatchEnd]) -> list[tuple[float, float]]:
    """(stamp, end of its batch) of each event (partition, position, stamp); batches in the order they ran.

    Raises ``ValueError`` for an event that no batch took.
    """
    ends: dict[int, list[int]] = {}
    times: dict[int, list[float]] = {}
    for batch in batches:
        for partition, end in batch.positions.items():
            ends.setdefault(partition, []).append(end)
            times.setdefault(partition, []).append(batch.time_s)
    pairs = []
    for partition, position, stamp_s in events:
        index = bisect_right(ends.get(partition, []), position)
        if index == len(ends.get(partition, [])):
            raise ValueError(f"no batch took the event at {position} of partition {partition}")
        pairs.append((stamp_s, times[partition][index]))
    return pairs


def waits_ms(pairs: Iterable[tuple[float, float]], warm_s: float) -> list[float]:
    """From stamp to batch end, in ascending order, without the events of the first ``warm_s`` seconds."""
    kept = sorted(pairs)
    first_s = kept[0][0] + warm_s if kept else 0.0
    return sorted((end_s - stamp_s) * 1000 for stamp_s, end_s in kept if stamp_s >= first_s)
