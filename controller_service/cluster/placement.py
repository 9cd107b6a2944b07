"""Says which store owns which container, as of the last look at the control plane oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pravega_common.services.cluster.registry import Member


@dataclass(frozen=True, slots=True)
class Placement:
    """``version``: of the assignment. ``owners``: store ids by containers, dead stores among them; ``stores``: those
    that have a lease, by their ids."""

    version: int
    container_count: int
    owners: Mapping[int, str]
    stores: Mapping[str, Member]
