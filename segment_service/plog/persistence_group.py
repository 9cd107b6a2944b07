"""Makes the clients of the persistence groups of a cluster, for one log."""

from __future__ import annotations

import secrets

import structlog

from pravega_common.errors import ConfigurationError, Outcome, PravegaError
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.plog.group_choice import GroupChoice
from segment_service.plog.group_contract import OpenPlog, PersistenceGroupClient
from segment_service.plog.plog import PlogHeader, PlogId
from segment_service.plog.plog_client import PlogClient, PlogSettings
from segment_service.plog.quorum_group import QuorumGroup
from segment_service.plog.single_server_group import SingleServerGroup

group_sizes = (1, 3)


class IdentityRecord:
    """Looks the identity of one server up for one container.

    A container has a record of its own, so that each admits a repaired server by itself. Without one, the record that
    all containers share counts.
    """

    def __init__(self, cpo: ControlPlaneOracle, cluster_name: str, group: str, index: int, container_id: int) -> None:
        self._cpo = cpo
        self._shared = f"plog-server/{cluster_name}/{group}/{index}"
        self._own = f"{self._shared}/{container_id}"

    async def __call__(self, shown: str | None) -> str | None:
        own = await self._cpo.get_constant(self._own)
        if own is not None:
            return own
        return await (
            self._cpo.get_constant(self._shared) if shown is None else self._cpo.set_once(self._shared, shown)
        )


def make_group(
    cluster_name: str, config: PersistenceGroup, settings: PlogSettings, cpo: ControlPlaneOracle, container_id: int
) -> PersistenceGroupClient:
    """The client of a group for the log of one container."""
    if len(config.servers) not in group_sizes or len(set(config.servers)) != len(config.servers):
        raise ConfigurationError(
            f"persistence group {config.name} has servers {', '.join(config.servers)}; give it 1 or 3, each once"
        )
    servers = [
        PlogClient(address, settings, IdentityRecord(cpo, cluster_name, config.name, index, container_id))
        for index, address in enumerate(config.servers)
    ]
    return SingleServerGroup(config.name, servers[0]) if len(servers) == 1 else QuorumGroup(config.name, servers)


class PersistenceClient:
    """The groups of one persistence cluster, as one log uses them."""

    def __init__(
        self,
        cluster: PersistenceCluster,
        settings: PlogSettings,
        cpo: ControlPlaneOracle,
        choice: GroupChoice,
        container_id: int,
    ) -> None:
        self.cluster_name = cluster.name
        self.settings = settings
        self._choice = choice
        self._log = structlog.get_logger(cluster=cluster.name)
        choice.saw(cluster)
        self._groups = {
            group.name: make_group(cluster.name, group, settings, cpo, container_id) for group in cluster.groups
        }

    async def create_plog(self, container_id: int, stream: str, number: int, epoch: int) -> OpenPlog:
        """Make an empty plog in the group that is chosen for it, or in another one if that takes none: a server that
        lost its data looks the emptiest. ``Fenced``; the error of the group that was chosen first if none takes it."""
        names = self._choice.candidates(tuple(self._groups))
        errors: list[PravegaError] = []
        while names:
            name = self._choice.choose(names, container_id, self.settings.block_bytes)
            plog_id = PlogId(self.cluster_name, name, secrets.token_hex(16))
            header = PlogHeader(plog_id, container_id, stream, number, epoch, self.settings.block_bytes)
            try:
                return await self._groups[name].create(header)
            except PravegaError as error:
                if error.outcome is Outcome.FENCED:
                    raise
                self._log.warning("a group takes no new plog", container_id=container_id, group=name, error=str(error))
                errors.append(error)
                names.remove(name)
        raise errors[0]

    @property
    def groups_for_new_plogs(self) -> list[PersistenceGroupClient]:
        """The groups that ``create_plog`` chooses from."""
        return [self._groups[name] for name in self._choice.candidates(tuple(self._groups))]

    def group_of(self, plog_id: PlogId) -> PersistenceGroupClient:
        """The group that has an existing plog."""
        group = self._groups.get(plog_id.group)
        if plog_id.cluster != self.cluster_name or group is None:
            raise ConfigurationError(f"plog {plog_id} is not in persistence cluster {self.cluster_name}; register it")
        return group

    async def move_server(self, cluster: PersistenceCluster, group: str, index: int, address: str) -> None:
        """Speak to another address in the place of a server, as ``cluster`` is registered now."""
        self._choice.saw(cluster)
        await self._groups[group].move_server(index, address)

    async def delete_left(self, group: str, index: int) -> None:
        """See ``PersistenceGroupClient.delete_left``."""
        await self._groups[group].delete_left(index)

    def damaged(self, group: str, index: int) -> set[PlogId]:
        """See ``PersistenceGroupClient.damaged``."""
        return self._groups[group].damaged(index)

    @property
    def groups(self) -> list[PersistenceGroupClient]:
        return list(self._groups.values())

    def close(self) -> None:
        for group in self._groups.values():
            group.reset()
