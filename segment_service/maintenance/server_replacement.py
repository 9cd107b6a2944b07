"""Replaces a server of a persistence group for good by another one, while stores run.

The new address is registered in the CPO in the place of the old one. The owner of each log follows it: it leaves the
old server once a majority of every plog is on the others, fills the new one, and admits it (``plog/repair.py``). Until
then the new server counts for no majority. Every step may be made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import ConfigurationError, Unavailable, VersionConflict
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.plog.append_quorum import majority_of
from segment_service.plog.cluster_registration import (
    AskServer,
    ServerFacts,
    register_attempts_max,
    server_identity_key,
    successor_key,
)

look_s: Final = 2.0
"""Pause between two looks at the progress."""

SUCCESSOR_RECORDED = register("maintenance.replace.successor_recorded")
SERVER_REGISTERED = register("maintenance.replace.server_registered")
IDENTITY_SHARED = register("maintenance.replace.identity_shared")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a replacement: the logs that count the new server, and those that do not yet."""

    admitted: tuple[int, ...]
    """The containers whose log counts it: it has all of their sealed plogs."""
    waiting: tuple[int, ...]
    """The containers whose log does not count it yet."""
    problem: str = ""
    """Why the server cannot be asked now."""

    @property
    def is_complete(self) -> bool:
        return not self.waiting and not self.problem


class ServerReplacement:
    """The replacement of ``old`` by ``new`` in one group; both are addresses as the stores' settings write them."""

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        ask: AskServer,
        clock: Clock,
        cluster_name: str,
        group: str,
        old: str,
        new: str,
    ) -> None:
        self._cpo = cpo
        self._ask = ask
        self._clock = clock
        self._cluster_name = cluster_name
        self._group = group
        self._old = old
        self._new = new

    async def plan(self) -> tuple[PersistenceCluster, PersistenceCluster]:
        """The cluster as it is registered, and as it will be; the same if it is done already.

        ``ConfigurationError`` with the remedy for a server that cannot take the place, or while a majority would be
        missing without the old one; ``Unavailable`` if a server that is needed does not answer.
        """
        cluster = await self._cpo.get_persistence_cluster(self._cluster_name)
        group = next((one for one in cluster.groups if one.name == self._group), None) if cluster is not None else None
        if cluster is None or group is None:
            raise ConfigurationError(f"cluster {self._cluster_name} has no persistence group {self._group}")
        if self._old not in group.servers:
            if self._new in group.servers and await self._successor() == self._new:
                return cluster, cluster
            raise ConfigurationError(
                f"{self._old} is no server of group {group.name}: these are {', '.join(group.servers)}"
            )
        self._refuse_place(cluster, group)
        index = group.servers.index(self._old)
        facts = await self._ask(self._new)
        await self._refuse_used(cluster, facts)
        await self._refuse_below_majority(group, index, facts)
        servers = (*group.servers[:index], self._new, *group.servers[index + 1 :])
        groups = tuple(PersistenceGroup(one.name, servers) if one is group else one for one in cluster.groups)
        return cluster, PersistenceCluster(cluster.name, groups, cluster.version)

    async def register(self) -> PersistenceCluster:
        """Register the new server, unless it is; the cluster as it is registered then."""
        for _ in range(register_attempts_max):
            before, after = await self.plan()
            if before.groups == after.groups:
                return before
            await self._cpo.replace_constant(self._successor_key, await self._successor(), self._new)
            failpoint(SUCCESSOR_RECORDED)
            try:
                result = await self._cpo.put_persistence_cluster(after)
            except VersionConflict:
                continue
            failpoint(SERVER_REGISTERED)
            return result
        raise Unavailable(f"persistence cluster {self._cluster_name} changed {register_attempts_max} times meanwhile")

    async def follow(self) -> AsyncIterator[Progress]:
        """The progress, again and again until every log counts the new server; then the replacement is complete."""
        while True:
            progress = await self._look()
            yield progress
            if progress.is_complete:
                return
            await self._clock.sleep(look_s)

    async def _look(self) -> Progress:
        index = await self._index()
        try:
            identity = (await self._ask(self._new)).identity
        except Unavailable as error:
            return Progress((), tuple(await self._containers()), str(error))
        shared = server_identity_key(self._cluster_name, self._group, index)
        containers = await self._containers()
        on_record = {one: await self._cpo.get_constant(f"{shared}/{one}") for one in containers}
        admitted = tuple(one for one in containers if identity is not None and on_record[one] == identity)
        progress = Progress(admitted, tuple(one for one in containers if one not in admitted))
        if progress.is_complete and identity is not None:
            # From now on nothing on record speaks for the old server, should it come back.
            await self._cpo.replace_constant(shared, await self._cpo.get_constant(shared), identity)
            failpoint(IDENTITY_SHARED)
        return progress

    async def _index(self) -> int:
        cluster = await self._cpo.get_persistence_cluster(self._cluster_name)
        groups = () if cluster is None else cluster.groups
        for group in groups:
            if group.name == self._group and self._new in group.servers:
                return group.servers.index(self._new)
        raise ConfigurationError(f"{self._new} is not registered in group {self._group} any more: it was replaced too")

    async def _containers(self) -> list[int]:
        """The containers that have a log."""
        count = int(await self._cpo.get_constant(CONTAINER_COUNT_KEY) or 0)
        return [one for one in range(count) if await self._cpo.get_metadata_plog(one) is not None]

    @property
    def _successor_key(self) -> str:
        return successor_key(self._cluster_name, self._group, self._old)

    async def _successor(self) -> str | None:
        return await self._cpo.get_constant(self._successor_key)

    def _refuse_place(self, cluster: PersistenceCluster, group: PersistenceGroup) -> None:
        if len(group.servers) == 1:
            raise ConfigurationError(
                f"group {group.name} has one server, and no other has its plogs: add a group, take this one out of the "
                "settings, and retire the server once its logs are in Tier 2"
            )
        for one in cluster.groups:
            if self._new in one.servers:
                raise ConfigurationError(f"{self._new} is a server of group {one.name}: every copy needs its own")

    async def _refuse_used(self, cluster: PersistenceCluster, facts: ServerFacts) -> None:
        """A server that shows an identity on record is one of the cluster, or a copy of its disk."""
        if facts.identity is None:
            return
        for group in cluster.groups:
            for index, server in enumerate(group.servers):
                if facts.identity in await self._identities(group.name, index):
                    raise ConfigurationError(
                        f"{self._new} shows the identity of {server}: it is that server, or a copy of its disk. Use an "
                        "empty Redis; a server that only moved needs nothing but its new address in the settings"
                    )

    async def _refuse_below_majority(self, group: PersistenceGroup, index: int, new: ServerFacts) -> None:
        """The others must be a majority that every log counts: nothing else keeps what was acknowledged."""
        counted = []
        for other, server in enumerate(group.servers):
            if other == index:
                continue
            facts = await self._ask(server)
            if facts.run_id == new.run_id:
                raise ConfigurationError(f"{self._new} and {server} are one server: every copy needs its own")
            if await self._identities(group.name, other) - {facts.identity}:
                raise ConfigurationError(
                    f"{server} of group {group.name} does not have all plogs yet, or lost them: without {self._old} "
                    "there would be no majority. Wait until the stores' /health names it no more"
                )
            counted.append(server)
        check(len(counted) >= majority_of(len(group.servers)), "a replacement without a majority", servers=counted)

    async def _identities(self, group: str, index: int) -> set[str | None]:
        """The identities that the logs expect of a server."""
        shared = server_identity_key(self._cluster_name, group, index)
        standing = await self._cpo.get_constant(shared)
        count = int(await self._cpo.get_constant(CONTAINER_COUNT_KEY) or 0)
        own = [await self._cpo.get_constant(f"{shared}/{one}") for one in range(count)]
        found = {one if one is not None else standing for one in own} if own else {standing}
        return found - {None}
