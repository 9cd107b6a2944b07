"""Registers in an empty CPO what the plog servers and Tier 2 know of a cluster.

For each container: its newest metadata plog and an epoch that is not below any that was ever shown; besides, the
number of containers, the persistence groups, and the identities of their servers. Everything is read and judged before
anything is registered, and every step may be made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from pravega_common.errors import ConfigurationError, DataCorruption, Fenced, Unavailable, VersionConflict
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceGroup
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY, SEGMENT_STORE_KIND
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.maintenance.plog_census import CopyFacts, ServerCensus, copies_of, take_census
from segment_service.maintenance.restore_claim import claimed
from segment_service.plog.cluster_registration import AskServer, register_groups, server_identity_key
from segment_service.plog.metadata_manager import stream_name as metadata_stream
from segment_service.plog.metadata_records import FullRecord
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogSettings
from segment_service.storage.chunk_names import Layout
from segment_service.store import marked_container_counts

LOCK: Final = "rebuild-cpo"
LOST_IDENTITY: Final = "lost"
"""On record for a server that has no identity of its own: it lost its data, and no server ever shows this."""

IDENTITIES_SET = register("maintenance.rebuild.identities_set")
CLUSTER_REGISTERED = register("maintenance.rebuild.cluster_registered")
EPOCH_RAISED = register("maintenance.rebuild.epoch_raised")
CONTAINER_REGISTERED = register("maintenance.rebuild.container_registered")


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """One container: its epoch, 0 if it never ran, and its newest metadata plog."""

    container_id: int
    epoch: int
    metadata_plog: PlogId | None
    plogs: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The registrations that a rebuild makes."""

    cluster_name: str
    groups: tuple[PersistenceGroup, ...]
    containers: tuple[ContainerFacts, ...]
    identities: tuple[tuple[str, str], ...]
    """Key and value of the constant of each server that has one."""
    warnings: tuple[str, ...]
    registered: tuple[str | None, ...]
    """The metadata plog of each container in the CPO before the servers were looked at: no other one is replaced."""


class CPORebuild:
    """One rebuild; ``plan`` looks and changes nothing, ``carry_out`` registers."""

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        chunks: ChunkStorage,
        cluster_name: str,
        groups: Sequence[PersistenceGroup],
        settings: PlogSettings,
        clock: Clock,
        lease_ms: int,
    ) -> None:
        self._cpo = cpo
        self._chunks = chunks
        self._cluster_name = cluster_name
        self._groups = tuple(groups)
        self._settings = settings
        self._clock = clock
        self._lease_ms = lease_ms
        self._log = structlog.get_logger()

    async def plan(self, containers: int) -> ClusterPlan:
        """Look at all servers twice, a lease time apart.

        ``ConfigurationError`` if the settings are not those of the cluster or a store is running; ``Unavailable``
        without a majority of every group; ``DataCorruption`` if a log is not there.
        """
        marked = await marked_container_counts(self._chunks)
        if marked != {str(containers)}:
            raise ConfigurationError(
                f"store.containers = {containers}, but Tier 2 was made with {' and '.join(sorted(marked)) or 'no'} "
                "containers: use the settings of the cluster's stores"
            )
        await self._refuse_running_stores()
        registered = [await self._cpo.get_metadata_plog(container_id) for container_id in range(containers)]
        first = await take_census(self._groups, containers, self._settings)
        # A store that runs renews its lease in the new CPO as well, several times in this while.
        await self._clock.sleep(self._lease_ms / 1000)
        await self._refuse_running_stores()
        census = await take_census(self._groups, containers, self._settings)
        if [server.plogs for server in first] != [server.plogs for server in census]:
            raise ConfigurationError("plogs changed while they were looked at: a store is running; stop all stores")
        warnings = tuple(self._judge_servers(census))
        marks = [await self._newest_mark(container_id) for container_id in range(containers)]
        self._refuse_foreign(census)
        facts = tuple(_container(container_id, census, marks[container_id]) for container_id in range(containers))
        identities = [
            (server_identity_key(self._cluster_name, server.group, server.index), server.identity or LOST_IDENTITY)
            for server in census
            if not server.error and (server.identity is not None or _is_used(server.group, census))
        ]
        return ClusterPlan(self._cluster_name, self._groups, facts, tuple(identities), warnings, tuple(registered))

    async def carry_out(self, plan: ClusterPlan, ask: AskServer, *, replace: bool = False) -> None:
        """Register the plan.

        ``ConfigurationError`` if the CPO has other registrations, unless ``replace``: they are replaced then, each by
        compare-and-set.
        """
        await claimed(
            self._cpo,
            self._clock,
            lambda: self._carry_out(plan, ask, replace=replace),
            lock=LOCK,
            doing="rebuilding this CPO",
        )

    async def _carry_out(self, plan: ClusterPlan, ask: AskServer, *, replace: bool) -> None:
        await self._refuse_running_stores()
        await self._refuse_registrations(plan, replace=replace)
        await self._set_constant(CONTAINER_COUNT_KEY, str(len(plan.containers)), replace=replace)
        for key, identity in plan.identities:
            await self._set_constant(key, identity, replace=replace)
        failpoint(IDENTITIES_SET)
        await register_groups(self._cpo, plan.cluster_name, plan.groups, ask)
        failpoint(CLUSTER_REGISTERED)
        for container, registered in zip(plan.containers, plan.registered, strict=True):
            await self._register(container, registered)

    async def _register(self, container: ContainerFacts, registered: str | None) -> None:
        if container.metadata_plog is None:
            return
        epoch = await self._cpo.raise_epoch(container.container_id, container.epoch)
        failpoint(EPOCH_RAISED)
        plog_id = str(container.metadata_plog)
        try:
            await self._cpo.put_metadata_plog(container.container_id, epoch, registered, plog_id)
        except (Fenced, VersionConflict) as error:
            raise _registered_meanwhile(container.container_id) from error
        failpoint(CONTAINER_REGISTERED)
        self._log.info("container registered", container=container.container_id, epoch=epoch, metadata_plog=plog_id)

    async def _set_constant(self, key: str, value: str, *, replace: bool) -> None:
        standing = await self._cpo.set_once(key, value)
        if standing == value:
            return
        if not replace:
            raise ConfigurationError(f"the CPO says {standing} for {key}, the servers {value}: see --replace")
        try:
            await self._cpo.replace_constant(key, standing, value)
        except VersionConflict as error:
            raise ConfigurationError(f"{key} changes while the CPO is rebuilt: stop all stores ({error})") from error

    async def _refuse_registrations(self, plan: ClusterPlan, *, replace: bool) -> None:
        """A CPO that knows a metadata plog did not lose its data; what an interrupted rebuild left may stay. One that
        was registered behind the plan has entries that the plan does not know: it is never replaced."""
        for container, before in zip(plan.containers, plan.registered, strict=True):
            registered = await self._cpo.get_metadata_plog(container.container_id)
            if registered not in (before, str(container.metadata_plog)):
                raise _registered_meanwhile(container.container_id)
            if not replace and registered not in (None, str(container.metadata_plog)):
                raise ConfigurationError(
                    f"the CPO still has registrations: metadata plog {registered} of container "
                    f"{container.container_id}, where the servers' newest is {container.metadata_plog}. A CPO that did "
                    "not lose its data needs no rebuilding; with --replace its registrations are replaced"
                )

    async def _refuse_running_stores(self) -> None:
        stores = await self._cpo.members(SEGMENT_STORE_KIND)
        if stores:
            raise ConfigurationError(f"segment stores are running: {', '.join(sorted(stores))}; stop all stores first")

    def _judge_servers(self, census: Sequence[ServerCensus]) -> Iterator[str]:
        """A warning for each server that is not used; an error without a majority of a group."""
        for group in self._groups:
            servers = [server for server in census if server.group == group.name]
            problems = [
                f"{server.address} {server.error or 'is empty: it lost its data, or was never used'}"
                for server in servers
                if not server.counts
            ]
            if 2 * (len(servers) - len(problems)) > len(servers) or not _is_used(group.name, census):
                yield from (f"group {group.name}: {problem}" for problem in problems)
            else:
                raise Unavailable(
                    f"persistence group {group.name}: {len(servers) - len(problems)} of {len(servers)} servers are "
                    f"there, a majority is needed: {'; '.join(problems)}"
                )

    def _refuse_foreign(self, census: Sequence[ServerCensus]) -> None:
        names = {group.name for group in self._groups}
        for copy in copies_of(census):
            for plog_id in (copy.header.plog_id, *_named(copy.metadata)):
                if plog_id.cluster != self._cluster_name or plog_id.group not in names:
                    raise ConfigurationError(
                        f"plog {plog_id} is of cluster {plog_id.cluster}, group {plog_id.group}: set cluster.name to "
                        "that, and name all groups that ever were in tier1.groups"
                    )

    async def _newest_mark(self, container_id: int) -> int:
        """The highest epoch that Tier 2 shows; 0 for a container that never wrote there."""
        layout = Layout(container_id)
        epochs = [layout.parse_epoch(info.name) async for info in self._chunks.list(layout.epochs)]
        return max(epochs, default=0)


def _registered_meanwhile(container_id: int) -> ConfigurationError:
    return ConfigurationError(
        f"a store registered container {container_id} after the servers were looked at: stop all stores, try again"
    )


def _is_used(group: str, census: Iterable[ServerCensus]) -> bool:
    """Whether some server of the group has an identity or did not answer, so that plogs may be there."""
    return any(server.group == group and (server.error or server.identity is not None) for server in census)


def _named(state: FullRecord | None) -> Iterator[PlogId]:
    """The plogs that a metadata log counts on."""
    for stream in state.streams.values() if state is not None else ():
        for plog in stream.plogs:
            yield plog.plog_id


def _container(container_id: int, census: Sequence[ServerCensus], marked_epoch: int) -> ContainerFacts:
    """The facts of one container; ``DataCorruption`` if Tier 2 or data plogs say that there must be a log and no
    metadata plog is, or if a plog that it names is on no server."""
    copies = list(copies_of(census, container_id))
    epoch = max((marked_epoch, *(copy.epoch for copy in copies)))
    newest = newest_metadata(container_id, copies, census)
    plogs = {copy.header.plog_id for copy in copies}
    if newest is None:
        has_data = any(copy.has_entries and copy.header.stream != metadata_stream for copy in copies)
        if has_data or marked_epoch:
            what = "data plogs" if has_data else f"a mark of epoch {marked_epoch} in Tier 2"
            raise DataCorruption(
                f"container {container_id} has {what}, but no metadata plog: its log was lost, or is in a group that "
                "the settings do not name"
            )
        return ContainerFacts(container_id, 0, None, len(plogs))
    longest = longest_copy(newest, copies)
    missing = [str(plog_id) for plog_id in _named(longest.metadata) if plog_id not in plogs]
    if missing:
        raise DataCorruption(
            f"container {container_id}: its metadata plog {newest} names plogs that no server has: {', '.join(missing)}"
        )
    return ContainerFacts(container_id, epoch, newest, len(plogs))


def longest_copy(plog_id: PlogId, copies: Iterable[CopyFacts]) -> CopyFacts:
    """The copy of a metadata plog that has the most records."""
    return max((copy for copy in copies if copy.header.plog_id == plog_id), key=_records)


def _records(copy: CopyFacts) -> int:
    """Orders copies of one metadata plog: each record makes the next plog's number or the truncation grow."""
    streams = copy.metadata.streams.values() if copy.metadata is not None else ()
    return sum(
        stream.next_number + (stream.truncated_at.plog_number if stream.truncated_at else 0) for stream in streams
    )


def newest_metadata(container_id: int, copies: Sequence[CopyFacts], census: Sequence[ServerCensus]) -> PlogId | None:
    """The metadata plog of the highest epoch and number that begins with a full record on a majority.

    One that fewer servers have was never registered, unless a server that does not count now has it as well.
    """
    headers = {copy.header.plog_id: copy.header for copy in copies if copy.metadata is not None}
    ages = {plog_id: (header.epoch, header.number) for plog_id, header in headers.items()}
    for plog_id in sorted(ages, key=ages.__getitem__, reverse=True):
        servers = [server for server in census if server.group == plog_id.group]
        having = sum(_has_metadata(server, container_id, plog_id) for server in servers)
        away = sum(not server.counts for server in servers)
        if 2 * having > len(servers):
            return plog_id
        if 2 * (having + away) > len(servers):
            raise Unavailable(
                f"container {container_id}: metadata plog {plog_id} is on {having} of {len(servers)} servers, and "
                f"{away} of them do not answer or are empty: bring one of these back"
            )
    return None


def _has_metadata(server: ServerCensus, container_id: int, plog_id: PlogId) -> bool:
    copy = server.plogs.get(container_id, {}).get(plog_id)
    return copy is not None and copy.metadata is not None
