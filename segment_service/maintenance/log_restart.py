"""Begins logs again in a Tier 1 that lost them: on plog servers, or in local files."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import structlog

from pravega_common.errors import PravegaError, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceGroup
from segment_service.contracts.data_log import DurableDataLog
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.maintenance.plog_census import ServerCensus, copies_of, take_census
from segment_service.plog.cluster_registration import AskServer, register_groups, server_identity_key
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.persistence_group import IdentityRecord
from segment_service.plog.plog import SET_IDENTITY, identity_key
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import ConnectionLost, RedisConnection
from segment_service.plog.redis_log import RedisDataLog

OWNER: Final = "store-restore"
"""The owner's name while nobody is assigned the container."""

IDENTITY_PUT: Final = register("maintenance.restore.identity_put_on_record")
LOG_DISCARDED: Final = register("maintenance.restore.log_discarded")


class RedisLogRestart:
    """``LogRestart`` on the persistence groups of a cluster.

    A server that lost its data counts for nothing as long as the CPO has its old identity on record. If a majority of a
    group did, nothing of that group can come back, and the new identities are put on record; a minority is left to the
    repair. A container that is not restored may have some of its log on a server that is left, and would go on without
    what only the others had: the old identities stay on record for it.
    """

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        cluster_name: str,
        groups: Sequence[PersistenceGroup],
        containers: int,
        settings: PlogSettings,
        clock: Clock,
        ask: AskServer,
    ) -> None:
        self._cpo = cpo
        self._cluster_name = cluster_name
        self._groups = tuple(groups)
        self._containers = containers
        self._settings = settings
        self._clock = clock
        self._ask = ask
        self._log = structlog.get_logger()

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        census = await take_census(self._groups, self._containers, self._settings)
        for group in self._groups:
            await self._admit([server for server in census if server.group == group.name], container_id)
        await register_groups(self._cpo, self._cluster_name, self._groups, self._ask)
        epoch_min = max([epoch_min, *(copy.epoch + 1 for copy in copies_of(census, container_id))])
        await (await self._new_log(container_id)).discard(epoch_min)
        failpoint(LOG_DISCARDED)
        log = await self._new_log(container_id)
        await log.initialize(epoch_min)
        return log

    async def _new_log(self, container_id: int) -> RedisDataLog:
        """A log that puts its plogs into the groups of the settings: a registered one that they do not name drains."""
        owner, choice = await self._owner(container_id), ChoiceByUse(self._groups)
        return RedisDataLog(
            container_id, owner, self._cpo, self._cluster_name, self._settings, self._clock, choice=choice
        )

    async def _owner(self, container_id: int) -> str:
        """The store that the container is assigned to: the CPO gives epochs to nobody else."""
        assignment = await self._cpo.get_assignment()
        owner = assignment.owners.get(container_id)
        if owner is None and assignment.version:
            await self._cpo.put_assignment(assignment.version, {**assignment.owners, container_id: OWNER})
        return owner or OWNER

    async def _admit(self, servers: list[ServerCensus], container_id: int) -> None:
        """Put the identities of a group's servers on record if a majority of them lost their data."""
        lost = [server for server in servers if not server.error and await self._is_lost(server, container_id)]
        away = [f"{server.address}: {server.error}" for server in servers if server.error]
        if 2 * len(away) >= len(servers):
            raise Unavailable(f"a majority of the servers is needed to begin a log again: {'; '.join(away)}")
        if 2 * len(lost) <= len(servers):
            return
        for other in range(self._containers):
            if other != container_id and await self._may_have_plogs(other, servers):
                await self._keep_on_record(lost, other)
        for server in lost:
            identity = server.identity or await self._new_identity(server)
            for key in self._keys(server, container_id):
                known = await self._cpo.get_constant(key)
                if known is not None:
                    await self._cpo.replace_constant(key, known, identity)
            failpoint(IDENTITY_PUT)
            self._log.warning("a server that lost its data is on record again", address=server.address)

    async def _is_lost(self, server: ServerCensus, container_id: int) -> bool:
        """Whether the server shows another identity than the one that counts for the container."""
        record = IdentityRecord(self._cpo, self._cluster_name, server.group, server.index, container_id)
        on_record = await record(None)
        return on_record is not None and on_record != server.identity

    async def _may_have_plogs(self, container_id: int, servers: Sequence[ServerCensus]) -> bool:
        """Whether a server of a group may have some of a container's log."""
        if await self._cpo.get_metadata_plog(container_id) is None:
            return False
        return any(server.error or server.plogs.get(container_id) for server in servers)

    async def _keep_on_record(self, lost: Sequence[ServerCensus], container_id: int) -> None:
        """Let servers stay lost for a container, whatever is put on record for all."""
        for server in lost:
            shared, own = self._keys(server, container_id)
            known = await self._cpo.get_constant(shared)
            if known is not None:
                await self._cpo.set_once(own, known)

    def _keys(self, server: ServerCensus, container_id: int) -> tuple[str, str]:
        """The constants of the identity: that of all containers, and the container's own."""
        key = server_identity_key(self._cluster_name, server.group, server.index)
        return key, f"{key}/{container_id}"

    async def _new_identity(self, server: ServerCensus) -> str:
        key = identity_key(self._settings.prefix)
        try:
            connection = await RedisConnection.open(
                server.address,
                connect_timeout_s=self._settings.connect_timeout_s,
                reply_timeout_s=self._settings.reply_timeout_s,
                access=self._settings.access,
            )
            try:
                await connection.run(SET_IDENTITY, (key, f"{key}:none"), secrets.token_hex(16))
                shown: bytes = await connection.call("GET", key)
                return shown.decode()
            finally:
                connection.abort()
        except ConnectionLost as error:
            raise Unavailable(f"Redis at {server.address} was lost: {error}") from error


class FileLogRestart:
    """``LogRestart`` in a folder that is locked by this process."""

    def __init__(self, folder: FileLogFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        log = FileDataLog(container_id, self._folder, self._clock)
        try:
            await log.initialize(epoch_min)
        except PravegaError as error:
            raise type(error)(f"{error}; move the folder c{container_id} of Tier 1 away, and restore again") from error
        return log
