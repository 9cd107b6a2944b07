"""Defines the contract of the control plane oracle (CPO): the little shared state that every other part agrees on.

Segment stores and controllers use it for container epochs, the registry of metadata plogs, the assignment of
containers, membership, elections and locks. Leases and locks only decide who *tries*; epochs and compare-and-set decide
who *may*. Losing the CPO means unavailability, never the loss of data.

Every call may raise ``Unavailable`` (nothing was done), every changing call ``UnknownOutcome`` (the answer was lost).
All changing calls may be made again after that: each is idempotent or a compare-and-set, except ``take_epoch``, where a
repeated call merely uses up one more epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

payload_bytes_max: Final = 64 * 1024
"""Bytes of one constant, lease payload, task or persistence cluster, as JSON."""
name_chars_max: Final = 512
"""Characters of a key, kind, role, member id or lock name."""


@dataclass(frozen=True, slots=True)
class PersistenceGroup:
    """The plog servers that hold copies of the same plogs."""

    name: str
    servers: tuple[str, ...]
    """``host:port`` or ``unix:/path`` of each server: one on a laptop, three in production."""


@dataclass(frozen=True, slots=True)
class PersistenceCluster:
    """The groups over which logs spread their plogs."""

    name: str
    groups: tuple[PersistenceGroup, ...]
    """In the order of their names when they come from the oracle."""
    version: int = 0
    """0 while it is not registered; raised by one with every change."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of each container."""

    version: int
    """0 while nothing was ever assigned; raised by one with every change."""
    owners: Mapping[int, str]
    """Container id to store id; a container without an owner is absent."""


class ControlPlaneOracle(Protocol):
    async def close(self) -> None:
        """Release connections; leases and locks stay until they expire. May be called twice."""
        ...

    # Constants of the cluster

    async def set_once(self, key: str, value: str) -> str:
        """Write a constant unless it has a value; return the value that stands (the first one ever written)."""
        ...

    async def get_constant(self, key: str) -> str | None: ...

    async def replace_constant(self, key: str, expected: str | None, value: str) -> None:
        """Give a constant another value, for a repair or of the few that may change: there is no other way.

        ``VersionConflict`` unless it is ``expected``, ``None`` for no value. Does nothing if it is ``value`` already.
        """
        ...

    # Persistence clusters

    async def put_persistence_cluster(self, cluster: PersistenceCluster) -> PersistenceCluster:
        """Replace the groups of the cluster of that name, and return it with its new version.

        ``VersionConflict`` unless ``cluster.version`` is the registered one, 0 for a new cluster. Does nothing if these
        groups are registered already.
        """
        ...

    async def get_persistence_cluster(self, name: str) -> PersistenceCluster | None: ...

    # Containers

    async def take_epoch(self, container_id: int, owner: str, at_least: int = 1) -> int:
        """Give ``owner`` the next epoch of a container: above every earlier one and not below ``at_least``.

        One step with the check of the assignment: once an assignment exists, ``Fenced`` unless the container is
        assigned to ``owner``.
        """
        ...

    async def current_epoch(self, container_id: int) -> int:
        """The highest epoch ever given out, 0 if none."""
        ...

    async def raise_epoch(self, container_id: int, at_least: int) -> int:
        """Let no epoch up to ``at_least`` be given out from now on; the highest epoch that counts as given out."""
        ...

    async def get_metadata_plog(self, container_id: int) -> str | None:
        """The id of the container's current metadata plog."""
        ...

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        """Replace the metadata plog ``expected`` by ``plog_id``.

        ``Fenced`` unless ``epoch`` is the container's current epoch; ``VersionConflict`` unless ``expected`` is
        registered. Succeeds, doing nothing, if ``plog_id`` is registered already.
        """
        ...

    # Membership

    async def time_of_day_ms(self) -> int:
        """The oracle's time of day, in milliseconds since 1970, by which leases end."""
        ...

    async def renew_lease(self, kind: str, member_id: str, payload: dict[str, Any], ttl_ms: int) -> int:
        """Take or renew a membership for ``ttl_ms`` from now; the payload (JSON) replaces the earlier one.

        Returns the oracle's time of day meanwhile.
        """
        ...

    async def release_lease(self, kind: str, member_id: str) -> None: ...

    async def members(self, kind: str) -> dict[str, dict[str, Any]]:
        """Payload of every member whose lease has not run out."""
        ...

    # Elections and locks

    async def try_lead(self, role: str, member_id: str, ttl_ms: int) -> bool:
        """Become or stay leader for ``ttl_ms`` from now; false while somebody else leads."""
        ...

    async def resign(self, role: str, member_id: str) -> None:
        """Stop leading; does nothing for a member that does not lead."""
        ...

    async def leader(self, role: str) -> str | None: ...

    async def try_lock(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Take or renew a lock for ``ttl_ms`` from now; false while somebody else holds it."""
        ...

    async def unlock(self, name: str, holder: str) -> None:
        """Give up a lock; does nothing for one that does not hold it."""
        ...

    # Assignment of containers

    async def get_assignment(self) -> Assignment: ...

    async def put_assignment(self, expected_version: int, owners: Mapping[int, str]) -> int:
        """Replace the whole assignment; returns the new version, ``expected_version + 1``.

        ``VersionConflict`` unless ``expected_version`` is the current version.
        """
        ...

    async def wait_assignment(self, after_version: int, timeout_s: float) -> Assignment:
        """The assignment, as soon as its version is above ``after_version``; the current one after ``timeout_s``."""
        ...

    # Index of running tasks

    async def add_task(self, member_id: str, task_id: str, payload: dict[str, Any]) -> None:
        """Note that a member works on a task, so that others find it when the member dies."""
        ...

    async def remove_task(self, member_id: str, task_id: str) -> None: ...

    async def move_task(self, task_id: str, from_member: str, to_member: str) -> bool:
        """Take a task over in one step; false if ``from_member`` does not have it (any more)."""
        ...

    async def tasks(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Member id to task id to payload."""
        ...
