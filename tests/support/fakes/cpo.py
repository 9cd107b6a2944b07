"""Keeps the control plane oracle in memory: one instance is the CPO of all parts of a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pravega_common.errors import Fenced, Unavailable, VersionConflict
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.cluster.codec import (
    checked_name,
    checked_ttl_ms,
    checked_value,
    cluster_from_json,
    cluster_to_json,
    payload_to_json,
    replaced_cluster,
)
from pravega_common.services.cluster.cpo import Assignment, PersistenceCluster


class InMemoryCPO:
    """``ControlPlaneOracle`` in a few dictionaries. ``unavailable = True`` makes every call fail.

    Leases run out by ``clock``. ``time_of_day``: whose time of day it tells, the same unless a test sets another one.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.unavailable = False
        self._clock = clock or SystemClock()
        self.time_of_day = self._clock
        self._constants: dict[str, str] = {}
        self._clusters: dict[str, str] = {}
        self._epochs: dict[int, int] = {}
        self._metadata_plogs: dict[int, str] = {}
        self._leases: dict[str, dict[str, tuple[float, str]]] = {}
        self._holders: dict[tuple[str, str], tuple[float, str]] = {}
        self._assignment = Assignment(0, MappingProxyType({}))
        self._assignment_changed: set[asyncio.Future[None]] = set()
        self._tasks: dict[str, dict[str, str]] = {}

    async def close(self) -> None:
        pass

    async def set_once(self, key: str, value: str) -> str:
        self._raise_if_unavailable()
        return self._constants.setdefault(checked_name("key", key), checked_value(value))

    async def get_constant(self, key: str) -> str | None:
        self._raise_if_unavailable()
        return self._constants.get(key)

    async def replace_constant(self, key: str, expected: str | None, value: str) -> None:
        current = await self.get_constant(key)
        if current not in (expected, value):
            raise VersionConflict(f"constant {key} is {current or 'not set'}, not {expected}")
        self._constants[checked_name("key", key)] = checked_value(value)

    async def put_persistence_cluster(self, cluster: PersistenceCluster) -> PersistenceCluster:
        cluster_to_json(cluster)
        replaced = replaced_cluster(await self.get_persistence_cluster(cluster.name), cluster)
        self._clusters[cluster.name] = cluster_to_json(replaced)
        return replaced

    async def get_persistence_cluster(self, name: str) -> PersistenceCluster | None:
        self._raise_if_unavailable()
        text = self._clusters.get(name)
        return None if text is None else cluster_from_json(text)

    async def take_epoch(self, container_id: int, owner: str, at_least: int = 1) -> int:
        self._raise_if_unavailable()
        assigned = self._assignment.owners.get(container_id)
        if self._assignment.version > 0 and assigned != owner:
            raise Fenced(f"container {container_id} is assigned to {assigned or 'no store'}, not to {owner}")
        epoch = max(self._epochs.get(container_id, 0) + 1, at_least)
        self._epochs[container_id] = epoch
        return epoch

    async def current_epoch(self, container_id: int) -> int:
        self._raise_if_unavailable()
        return self._epochs.get(container_id, 0)

    async def raise_epoch(self, container_id: int, at_least: int) -> int:
        self._epochs[container_id] = max(await self.current_epoch(container_id), at_least)
        return self._epochs[container_id]

    async def get_metadata_plog(self, container_id: int) -> str | None:
        self._raise_if_unavailable()
        return self._metadata_plogs.get(container_id)

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        self._raise_if_unavailable()
        current_epoch = self._epochs.get(container_id, 0)
        if epoch != current_epoch:
            raise Fenced(f"container {container_id}: epoch {epoch} was superseded by {current_epoch}")
        current = self._metadata_plogs.get(container_id)
        if current != plog_id and current != expected:
            raise VersionConflict(f"container {container_id}: metadata plog is {current}, not {expected}")
        self._metadata_plogs[container_id] = checked_name("plog id", plog_id)

    async def time_of_day_ms(self) -> int:
        self._raise_if_unavailable()
        return self.time_of_day.wall_ms()

    async def renew_lease(self, kind: str, member_id: str, payload: dict[str, Any], ttl_ms: int) -> int:
        self._raise_if_unavailable()
        expires_s = self._clock.monotonic_s() + checked_ttl_ms(ttl_ms) / 1000
        members = self._leases.setdefault(checked_name("kind", kind), {})
        members[checked_name("member", member_id)] = (expires_s, payload_to_json(payload))
        return self.time_of_day.wall_ms()

    async def release_lease(self, kind: str, member_id: str) -> None:
        self._raise_if_unavailable()
        self._leases.get(kind, {}).pop(member_id, None)

    async def members(self, kind: str) -> dict[str, dict[str, Any]]:
        self._raise_if_unavailable()
        now_s = self._clock.monotonic_s()
        leases = self._leases.get(kind, {}).items()
        return {member: json.loads(payload) for member, (expires_s, payload) in leases if expires_s > now_s}

    async def try_lead(self, role: str, member_id: str, ttl_ms: int) -> bool:
        return self._try_hold("leader", role, member_id, ttl_ms)

    async def resign(self, role: str, member_id: str) -> None:
        self._give_up("leader", role, member_id)

    async def leader(self, role: str) -> str | None:
        return self._holder("leader", role)

    async def try_lock(self, name: str, holder: str, ttl_ms: int) -> bool:
        return self._try_hold("lock", name, holder, ttl_ms)

    async def unlock(self, name: str, holder: str) -> None:
        self._give_up("lock", name, holder)

    async def get_assignment(self) -> Assignment:
        self._raise_if_unavailable()
        return self._assignment

    async def put_assignment(self, expected_version: int, owners: Mapping[int, str]) -> int:
        self._raise_if_unavailable()
        if expected_version != self._assignment.version:
            raise VersionConflict(f"assignment is at version {self._assignment.version}, not at {expected_version}")
        self._assignment = Assignment(expected_version + 1, MappingProxyType(dict(owners)))
        waiters, self._assignment_changed = self._assignment_changed, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return self._assignment.version

    async def wait_assignment(self, after_version: int, timeout_s: float) -> Assignment:
        self._raise_if_unavailable()
        if self._assignment.version > after_version:
            return self._assignment
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()
        self._assignment_changed.add(changed)
        timer = loop.call_later(timeout_s, lambda: None if changed.done() else changed.set_result(None))
        try:
            await changed
        finally:
            timer.cancel()
            self._assignment_changed.discard(changed)
        self._raise_if_unavailable()
        return self._assignment

    async def add_task(self, member_id: str, task_id: str, payload: dict[str, Any]) -> None:
        self._raise_if_unavailable()
        tasks = self._tasks.setdefault(checked_name("member", member_id), {})
        tasks[checked_name("task", task_id)] = payload_to_json(payload)

    async def remove_task(self, member_id: str, task_id: str) -> None:
        self._raise_if_unavailable()
        self._tasks.get(member_id, {}).pop(task_id, None)

    async def move_task(self, task_id: str, from_member: str, to_member: str) -> bool:
        self._raise_if_unavailable()
        payload = self._tasks.get(from_member, {}).pop(task_id, None)
        if payload is None:
            return False
        self._tasks.setdefault(checked_name("member", to_member), {})[task_id] = payload
        return True

    async def tasks(self) -> dict[str, dict[str, dict[str, Any]]]:
        self._raise_if_unavailable()
        return {
            member: {task_id: json.loads(payload) for task_id, payload in tasks.items()}
            for member, tasks in self._tasks.items()
            if tasks
        }

    def _raise_if_unavailable(self) -> None:
        if self.unavailable:
            raise Unavailable("the control plane oracle does not answer")

    def _holder(self, what: str, name: str) -> str | None:
        self._raise_if_unavailable()
        expires_s, holder = self._holders.get((what, name), (0.0, ""))
        return holder if expires_s > self._clock.monotonic_s() else None

    def _try_hold(self, what: str, name: str, holder: str, ttl_ms: int) -> bool:
        if self._holder(what, checked_name(what, name)) not in (None, checked_name("holder", holder)):
            return False
        self._holders[what, name] = (self._clock.monotonic_s() + checked_ttl_ms(ttl_ms) / 1000, holder)
        return True

    def _give_up(self, what: str, name: str, holder: str) -> None:
        if self._holder(what, name) == holder:
            del self._holders[what, name]
