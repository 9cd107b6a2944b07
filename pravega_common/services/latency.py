"""Counts how long calls took, in buckets that double: one addition a call, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily

bucket_min_bits: Final = 7
"""The first bucket ends at 2^7 µs = 128 µs."""
bucket_max_bits: Final = 26
"""The last bucket with an end ends at 2^26 µs = 67 s."""

_ENDS_S: Final = tuple((1 << bits) / 1e6 for bits in range(bucket_min_bits, bucket_max_bits + 1))


class LatencyCounts:
    """The durations of one kind of call since the start of the process."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_ENDS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def note(self, duration_s: float) -> None:
        """Count a call that took this long; a negative duration counts as none."""
        bits = int(max(duration_s, 0.0) * 1e6).bit_length()
        self._counts[min(max(bits - bucket_min_bits, 0), len(_ENDS_S))] += 1
        self.sum_s += duration_s

    def quantile_s(self, share: float) -> float:
        """The end of the bucket in which this share of all calls ended; 0 if there was none."""
        wanted, seen = share * self.count, 0
        for end_s, count in zip((*_ENDS_S, 2 * _ENDS_S[-1]), self._counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return end_s
        return 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """The upper ends in seconds, and how many calls took at most that, as Prometheus wants them."""
        found, seen = [], 0
        for end, count in zip((*map(str, _ENDS_S), "+Inf"), self._counts, strict=True):
            seen += count
            found.append((end, float(seen)))
        return found


def latency_family(
    name: str, text: str, labels: Sequence[str], counts: Iterable[tuple[Sequence[str], LatencyCounts]]
) -> HistogramMetricFamily:
    """A metric of these counts, each with the values of its labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, counted in counts:
        family.add_metric(values, counted.buckets(), counted.sum_s)
    return family
