"""Speaks to a persistence group: the servers that hold the same plogs. Today groups have one server.

Every operation is stated for the group, so that a quorum of three can stand behind the same interface: an append is
done when a majority has it and everything before it is done; a fence needs a majority; a recovery reads a majority.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pravega_common.errors import ConfigurationError, UnsupportedOperation
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.contracts.buffer import Buffer
from segment_service.plog.group_choice import GroupChoice
from segment_service.plog.plog import FenceToken, PlogHeader, PlogId, PlogStatus
from segment_service.plog.plog_client import OnAppended, OpenPlog, PlogClient, PlogSettings, StoredEntry


class PersistenceGroupClient:
    """The plog operations on one group, for one log."""

    def __init__(
        self, cluster_name: str, config: PersistenceGroup, settings: PlogSettings, cpo: ControlPlaneOracle
    ) -> None:
        if len(config.servers) != 1:
            raise UnsupportedOperation(
                f"persistence group {config.name} has {len(config.servers)} servers; groups of one are supported"
            )
        self.name = config.name
        self._cluster_name = cluster_name
        self._cpo = cpo
        self._server = PlogClient(config.servers[0], settings, self._identity_on_record)

    async def _identity_on_record(self, shown: str | None) -> str | None:
        key = f"plog-server/{self._cluster_name}/{self.name}/0"
        return await self._cpo.get_constant(key) if shown is None else await self._cpo.set_once(key, shown)

    def reset(self) -> None:
        """Drop all connections; unanswered appends become unknown."""
        self._server.reset()

    async def open_for_appends(self) -> None:
        await self._server.open_for_appends()

    async def create(self, header: PlogHeader) -> OpenPlog:
        return await self._server.create(header)

    def append(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """Append in call order, without waiting; ``done`` is called on the loop, also in call order."""
        self._server.append(plog, start, frame, size, done)

    def append_urgent(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """As ``append``, also on servers that are full; much slower."""
        self._server.append_urgent(plog, start, frame, size, done)

    async def has_room(self) -> bool:
        """Whether appends find memory."""
        return await self._server.has_room()

    async def append_small(self, plog: OpenPlog, start: int, frame: bytes) -> None:
        await self._server.append_small(plog, start, frame)

    async def status(self, plog_id: PlogId) -> PlogStatus | None:
        return await self._server.status(plog_id)

    async def fence(self, plog_id: PlogId, epoch: int) -> PlogStatus:
        return await self._server.fence(plog_id, epoch)

    async def seal(self, plog_id: PlogId, epoch: int, offset: int) -> int:
        return await self._server.seal(plog_id, epoch, offset)

    async def delete(self, plog_id: PlogId, container_id: int, epoch: int) -> bool:
        return await self._server.delete(plog_id, container_id, epoch)

    async def list_plogs(self, container_id: int) -> list[PlogId]:
        return await self._server.list_plogs(container_id)

    async def header(self, plog_id: PlogId) -> PlogHeader:
        return await self._server.header(plog_id)

    async def has_entry_at(self, plog_id: PlogId, offset: int) -> bool:
        return await self._server.has_entry_at(plog_id, offset)

    def read(self, plog_id: PlogId, token: FenceToken, start: int, end: int) -> AsyncIterator[StoredEntry]:
        return self._server.read(plog_id, token, start, end)


class PersistenceClient:
    """The groups of one persistence cluster, as one log uses them."""

    def __init__(
        self, cluster: PersistenceCluster, settings: PlogSettings, cpo: ControlPlaneOracle, choice: GroupChoice
    ) -> None:
        self.cluster_name = cluster.name
        self.settings = settings
        self._choice = choice
        choice.saw(cluster)
        self._groups = {
            group.name: PersistenceGroupClient(cluster.name, group, settings, cpo) for group in cluster.groups
        }

    def choose_group(self, container_id: int) -> PersistenceGroupClient:
        """The group for a new plog of a container; another plog may get another one."""
        return self._groups[self._choice.choose(tuple(self._groups), container_id, self.settings.block_bytes)]

    @property
    def groups_for_new_plogs(self) -> list[PersistenceGroupClient]:
        """The groups that ``choose_group`` chooses from."""
        return [self._groups[name] for name in self._choice.candidates(tuple(self._groups))]

    def group_of(self, plog_id: PlogId) -> PersistenceGroupClient:
        """The group that has an existing plog."""
        group = self._groups.get(plog_id.group)
        if plog_id.cluster != self.cluster_name or group is None:
            raise ConfigurationError(f"plog {plog_id} is not in persistence cluster {self.cluster_name}; register it")
        return group

    @property
    def groups(self) -> list[PersistenceGroupClient]:
        return list(self._groups.values())

    def close(self) -> None:
        for group in self._groups.values():
            group.reset()
