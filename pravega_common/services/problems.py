"""Defines a problem of a service, in words for its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from prometheus_client.core import GaugeMetricFamily

LEASE_LOST: Final = "lease-lost"
"""The code of a service whose lease ran out. It is over once the lease is renewed, so no lease carries it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a service does not do its work, or does it with less than it should have."""

    code: str
    """Stable, for programs: words joined by hyphens."""
    text: str
    """One sentence: what is wrong, with its figures."""
    remedy: str
    """One sentence: what to do."""
    stops_work: bool
    """Whether the service is not ready because of it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read the fields, and pass over what a newer version adds; ``KeyError`` for one that is missing."""
        return cls(str(values["code"]), str(values["text"]), str(values["remedy"]), bool(values["stops_work"]))


def is_ready(problems: Sequence[Problem]) -> bool:
    """Whether none of the problems stops the work."""
    return not any(problem.stops_work for problem in problems)


def problem_family(name: str, problems: Sequence[Problem]) -> GaugeMetricFamily:
    """A metric that is 1 for each problem there is, by its code."""
    family = GaugeMetricFamily(name, "1 for each problem that health names", labels=["code"])
    for code in sorted({problem.code for problem in problems}):
        family.add_metric([code], 1.0)
    return family
