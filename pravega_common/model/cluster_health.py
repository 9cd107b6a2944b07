"""Defines the problems of a cluster and its live stores, as a controller tells them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterProblem:
    """A reason why the cluster does not do its work, or does it with less than it should have."""

    code: str
    """Stable, for programs: words joined by hyphens."""
    text: str
    remedy: str
    stops_work: bool


@dataclass(frozen=True, slots=True)
class ClusterStore:
    """A segment store that has a lease."""

    store_id: str
    address: str
    """``host:port`` of the wire protocol."""
    containers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    """The problems that one controller knows of, the worst first, and the stores at its last look."""

    problems: tuple[ClusterProblem, ...]
    container_count: int
    stores: tuple[ClusterStore, ...]
    unknown: str = ""
    """Why the control plane oracle could not be looked at; empty if it could."""
