"""Registers the persistence groups of a store's settings in the CPO, under the name of the cluster.

The CPO keeps every group that was ever registered, since plogs may be there. A store adds the groups that its settings
name and puts its new plogs there. It never drops a group, and never exchanges a server of one: another address is taken
only if the server there shows the identity that is on record, as one that moved does. An operator exchanges one
(``maintenance/server_replacement.py``): settings that still name the old one are read as if they named the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from pravega_common.errors import ConfigurationError, Unavailable, VersionConflict
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_audit import parse_info
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess
from segment_service.plog.plog import identity_key
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import ConnectionLost, RedisConnection

group_sizes: Final = (1, 3)
"""Servers that a group may have: no copy, or a majority that survives the loss of any one."""
register_attempts_max: Final = 20
"""Tries of a registration that other stores' registrations overtake."""
call_time_max_s: Final = 5.0
successors_max: Final = 32
"""Replacements, one after the other, that settings may be behind."""
name_chars_max: Final = 64
"""Characters of the name of a cluster or a group, which every plog id repeats."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The process that answers at an address, and the identity of the plogs that it keeps; ``None`` before the first
    log used it."""

    run_id: str
    identity: str | None


AskServer = Callable[[str], Awaitable[ServerFacts]]
"""The facts of the server at an address; ``Unavailable`` if none answers there."""


def group_problems(cluster_name: str, groups: Sequence[PersistenceGroup]) -> list[str]:
    """One sentence, with the remedy, for each reason why these groups cannot hold plogs; empty if they can."""
    problems = [
        f"{what} {name!r}: 1 to {name_chars_max} printable characters without / are allowed, as plog ids hold it"
        for what, name in (("cluster.name", cluster_name), *(("persistence group", group.name) for group in groups))
        if not 0 < len(name) <= name_chars_max or not name.isprintable() or "/" in name
    ]
    for group in groups:
        if len(group.servers) not in group_sizes:
            problems.append(
                f"persistence group {group.name} has {len(group.servers)} servers: use 1 or 3, "
                "as a majority of 2 is both of them"
            )
    uses = Counter(server for group in groups for server in group.servers)
    for server, count in uses.items():
        if count > 1:
            names = ", ".join(group.name for group in groups for one in group.servers if one == server)
            problems.append(f"server {server} is listed {count} times, in {names}: every copy needs its own server")
    return problems


async def register_groups(
    cpo: ControlPlaneOracle, cluster_name: str, groups: Sequence[PersistenceGroup], ask: AskServer
) -> PersistenceCluster:
    """Add the groups that are not registered yet, and take the new addresses of servers that moved; the cluster as it
    is registered then.

    ``ConfigurationError`` if a registered group of the same name has other servers, or if a group or its servers cannot
    hold plogs. ``Unavailable`` unless all servers of a new group, and those that moved, answer.
    """
    problems = group_problems(cluster_name, groups)
    if problems:
        raise ConfigurationError("; ".join(problems))
    log = structlog.get_logger()
    for _ in range(register_attempts_max):
        registered = await cpo.get_persistence_cluster(cluster_name) or PersistenceCluster(cluster_name, ())
        joined = await _Joining(cpo, registered, ask).join(groups)
        new = [group for group in joined if group not in registered.groups]
        if not new:
            return registered
        await _refuse_one_server_twice(joined, registered, ask)
        try:
            result = await cpo.put_persistence_cluster(PersistenceCluster(cluster_name, joined, registered.version))
        except VersionConflict:
            continue
        log.info("persistence groups registered", cluster=cluster_name, groups={one.name: one.servers for one in new})
        return result
    raise Unavailable(f"persistence cluster {cluster_name} changed {register_attempts_max} times while it was joined")


class _Joining:
    """The groups of some settings put beside those that are registered."""

    def __init__(self, cpo: ControlPlaneOracle, registered: PersistenceCluster, ask: AskServer) -> None:
        self._cpo = cpo
        self._registered = registered
        self._ask = ask
        self._homes = {server: group.name for group in registered.groups for server in group.servers}

    async def join(self, groups: Sequence[PersistenceGroup]) -> tuple[PersistenceGroup, ...]:
        joined = {group.name: group for group in self._registered.groups}
        for named in groups:
            old = joined.get(named.name)
            group = named if old is None else await self._with_successors(old, named)
            self._refuse_server_of_another(group)
            if old is None:
                joined[group.name] = group
            elif {*old.servers} != {*group.servers}:
                joined[group.name] = await self._moved(old, group)
        return tuple(joined.values())

    async def _with_successors(self, registered: PersistenceGroup, group: PersistenceGroup) -> PersistenceGroup:
        """The group of some settings with the registered server in the place of each that was replaced."""
        servers = []
        for server in group.servers:
            current: str | None = server
            for _ in range(successors_max):
                if current is None or current in registered.servers:
                    break
                current = await self._cpo.get_constant(successor_key(self._registered.name, group.name, current))
            servers.append(current if current in registered.servers else server)
            if servers[-1] != server:
                structlog.get_logger().warning(
                    "the settings name a plog server that was replaced", group=group.name, old=server, new=servers[-1]
                )
        return PersistenceGroup(group.name, tuple(servers))

    def _refuse_server_of_another(self, group: PersistenceGroup) -> None:
        for server in group.servers:
            home = self._homes.get(server, group.name)
            if home != group.name:
                raise ConfigurationError(
                    f"persistence group {group.name} names server {server}, which is registered in group {home}: "
                    "every group needs servers of its own"
                )

    async def _moved(self, old: PersistenceGroup, new: PersistenceGroup) -> PersistenceGroup:
        """The registered group with the addresses of the settings, each at the place of the server that shows its
        identity there."""
        servers = list(old.servers)
        free = {index for index, server in enumerate(servers) if server not in new.servers}
        arrived = [server for server in new.servers if server not in old.servers]
        for server in arrived if len(old.servers) == len(new.servers) else ():
            try:
                identity = (await self._ask(server)).identity
            except Unavailable as error:
                raise Unavailable(f"{self._difference(old, new)}, and {error}") from error
            for index in sorted(free):
                if await self._is_on_record(old.name, index, identity):
                    servers[index] = server
                    free.remove(index)
                    break
        if free or len(old.servers) != len(new.servers):
            raise ConfigurationError(
                f"{self._difference(old, new)}, and these are not the same servers at other addresses: set tier1 to "
                "the registered ones, or give the new ones a group of another name"
            )
        return PersistenceGroup(old.name, tuple(servers))

    def _difference(self, old: PersistenceGroup, new: PersistenceGroup) -> str:
        return (
            f"persistence group {old.name} of cluster {self._registered.name} is registered with "
            f"{', '.join(old.servers)}, the settings say {', '.join(new.servers)}"
        )

    async def _is_on_record(self, group: str, index: int, identity: str | None) -> bool:
        """Whether the server of this place showed the identity before; without any record, whether it has none."""
        key = server_identity_key(self._registered.name, group, index)
        count = int(await self._cpo.get_constant(CONTAINER_COUNT_KEY) or 0)
        is_known = False
        for record_key in (key, *(f"{key}/{container_id}" for container_id in range(count))):
            record = await self._cpo.get_constant(record_key)
            if record is not None and record == identity:
                return True
            is_known = is_known or record is not None
        return identity is None and not is_known


def server_identity_key(cluster: str, group: str, index: int) -> str:
    """The CPO's constant for the identity of a group's server; one for each container lies below it."""
    return f"plog-server/{cluster}/{group}/{index}"


def successor_key(cluster: str, group: str, server: str) -> str:
    """The CPO's constant for the address that took the place of a group's server."""
    return f"plog-server-successor/{cluster}/{group}/{server}"


async def _refuse_one_server_twice(
    groups: Sequence[PersistenceGroup], registered: PersistenceCluster, ask: AskServer
) -> None:
    """Two addresses may lead to one server, which only the server's process can tell. Registered servers that do not
    answer now are not compared."""
    old = {server for group in registered.groups for server in group.servers}
    homes: dict[str, str] = {}
    for server, name in _servers(groups):
        try:
            process = (await ask(server)).run_id
        except Unavailable as error:
            if server not in old:
                raise Unavailable(f"persistence group {name} cannot be registered yet: {error}") from error
            continue
        if process in homes and not {server, homes[process]} <= old:
            raise ConfigurationError(f"{homes[process]} and {server} are one server: every copy needs its own")
        homes[process] = server


def _servers(groups: Sequence[PersistenceGroup]) -> Iterator[tuple[str, str]]:
    for group in groups:
        for server in group.servers:
            yield server, group.name


def asking_with(access: RedisAccess) -> AskServer:
    """``ask_redis`` with a login."""
    return partial(ask_redis, access=access)


async def ask_redis(address: str, access: RedisAccess = OPEN_ACCESS) -> ServerFacts:
    """Ask the Redis at an address, over a connection for this alone."""
    connection = await RedisConnection.open(
        address, connect_timeout_s=call_time_max_s, reply_timeout_s=call_time_max_s, access=access
    )
    try:
        info = parse_info((await connection.call("INFO", "server")).decode())
        identity = await connection.call("GET", identity_key(PlogSettings().prefix))
        return ServerFacts(info.get("run_id", address), None if identity is None else identity.decode())
    except ConnectionLost as error:
        raise Unavailable(str(error)) from error
    finally:
        connection.abort()
