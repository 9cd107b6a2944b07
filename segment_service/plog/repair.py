"""Repairs the copies of a container's sealed plogs on servers that are behind, came back empty or were replaced.

The owner of the log does it in the background. A sealed plog is looked at once on each server of its group, and again
after that was restarted; a copy that is missing or shorter is completed from the others, and so is one that a reader
found damaged. A server whose
identity is not the one on record is lost: its answers count for no majority. It gets an identity if it has none, then
all sealed plogs of the container, and only then its identity takes the place of the recorded one; after that the log
goes on in plogs that include it.

A server that an operator replaced for good, by another address in the CPO, is left in the same way: the log goes to the
new address once a majority of every plog is on the others, and fills what it finds there.

A server is admitted only while a majority, without it, answers and has everything that was acknowledged in the plogs
that are still open. These it need not have: it cannot join them, so nothing more is acknowledged in them without that
majority. Two servers that lost their data are never admitted: what only they had would then count as never written.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from pravega_common.errors import DataCorruption, Fenced, PravegaError, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.plog.append_quorum import majority_of
from segment_service.plog.chain import offset_max
from segment_service.plog.cluster_registration import server_identity_key
from segment_service.plog.group_servers import GroupServers
from segment_service.plog.metadata_records import PlogRecord
from segment_service.plog.persistence_group import IdentityRecord
from segment_service.plog.plog import FenceToken, PlogId, PlogStatus
from segment_service.plog.plog_client import PlogClient, PlogSettings
from segment_service.plog.registered_servers import RegisteredServers
from segment_service.plog.sealed_reader import read_sealed
from segment_service.plog.server_connections import ServerLost

look_s: Final = 2.0
"""Pause between two rounds; a round in which nothing is to be done asks no server that is connected."""
repair_bytes_per_s: Final = 64 * 1024 * 1024
"""Bytes a second that the repair of one log reads at most; one entry, at most 2 MiB, is on its way at a time."""

SERVER_MOVED = register("plog.repair.server_moved")
COPY_REPAIRED = register("plog.repair.copy_repaired")
PLOGS_COPIED = register("plog.repair.plogs_copied")
SERVER_ADMITTED = register("plog.repair.server_admitted")


@dataclass(slots=True, eq=False)
class _Server:
    """One server of a group of three, as the repair knows it."""

    group: PersistenceGroup
    index: int
    client: PlogClient
    whole: set[PlogId] = field(default_factory=set)
    """The sealed plogs that it is known to have since its process started."""
    run_id: str = ""
    """That process."""
    out: str = ""
    """Why it does not take part; empty if it does."""

    @property
    def address(self) -> str:
        return self.client.address


class RepairedLog(Protocol):
    """The plogs of a log, as its owner knows them."""

    def sealed_plogs(self) -> Sequence[PlogRecord]:
        """Those that are recorded as sealed now, and hold something."""
        ...

    def groups(self) -> Set[str]:
        """The groups that hold some of the log or may get its next plog."""
        ...

    def holders(self, group: str) -> list[set[int]]:
        """For each open plog in the group, the places of the servers that have all that was acknowledged in it."""
        ...

    def open_plogs_lacking(self) -> int:
        """Open plogs that a server of their group is out of."""
        ...

    def lacks(self, group: str, index: int, run_id: str) -> bool:
        """Whether a server that answers now, under this run, is out of an open plog. One that was restarted since it
        made its copy is out."""
        ...

    async def move_server(self, cluster: PersistenceCluster, group: str, index: int, address: str) -> None:
        """See ``PersistenceClient.move_server``."""
        ...

    async def delete_left(self, group: str, index: int) -> None:
        """See ``PersistenceGroupClient.delete_left``."""
        ...

    def damaged(self, group: str, index: int) -> set[PlogId]:
        """See ``PersistenceGroupClient.damaged``."""
        ...

    async def include_all(self) -> None:
        """Let the log go on in plogs that include the servers that are out of the open ones."""
        ...


class LogRepair(Service):
    """The repair of one log at one epoch; its connections are its own."""

    def __init__(
        self,
        container_id: int,
        epoch: int,
        cluster: PersistenceCluster,
        settings: PlogSettings,
        cpo: ControlPlaneOracle,
        clock: Clock,
        plogs: RepairedLog,
    ) -> None:
        super().__init__(f"log-repair-{container_id}")
        self.copied_bytes = 0
        """Bytes of entries copied to servers that lacked them."""
        self._container_id = container_id
        self._epoch = epoch
        self._cluster_name = cluster.name
        self._settings = settings
        self._cpo = cpo
        self._clock = clock
        self._plogs = plogs
        self._sealed_plogs = plogs.sealed_plogs
        self._registered = RegisteredServers(cluster, cpo, clock)
        self._servers = [
            self._make(cluster.name, group, index)
            for group in cluster.groups
            if len(group.servers) > 1
            for index in range(len(group.servers))
        ]

    def _make(self, cluster_name: str, group: PersistenceGroup, index: int) -> _Server:
        record = IdentityRecord(self._cpo, cluster_name, group.name, index, self._container_id)
        return _Server(group, index, PlogClient(group.servers[index], self._settings, record))

    @property
    def servers_out(self) -> dict[str, str]:
        """The addresses of the servers that do not take part, and why; those of a drained group need not."""
        needed = self._plogs.groups()
        return {server.address: server.out for server in self._servers if server.out and server.group.name in needed}

    @property
    def under_replicated_plogs(self) -> int:
        """Plogs that a server of their group is not known to have: sealed ones, and open ones that it is out of."""
        plogs = self._sealed_plogs()
        return self._plogs.open_plogs_lacking() + sum(
            any(record.plog_id not in server.whole for server in self._servers if server.group.name == group)
            for record in plogs
            for group in (record.plog_id.group,)
        )

    async def on_start(self) -> None:
        if self._servers:
            self.spawn(self._run(), "repair")

    async def on_stop(self) -> None:
        for server in self._servers:
            server.client.reset()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(look_s)
            try:
                await self.run_round()
            except Fenced:
                raise  # the log is over, and its owner may not know yet: it asks nobody while it has nothing to write
            except PravegaError as error:
                self.log.warning("repair waits", error=str(error))

    async def run_round(self) -> None:
        """Look at every server once, and repair what can be repaired now; ``Fenced`` if a later owner was seen."""
        if self._servers:
            await self._registered.look()
        for server in self._servers:
            known = {record.plog_id for record in self._sealed_plogs()}
            damaged = self._damaged(server)
            damaged &= known
            server.whole &= known - damaged
            try:
                await self._look(server)
            except PravegaError as error:
                # The owner itself seals and fences plogs meanwhile: that is no reason to stop.
                if isinstance(error, Fenced) and await self._is_superseded():
                    raise
                self._set_out(server, str(error))

    async def _is_superseded(self) -> bool:
        return await self._cpo.current_epoch(self._container_id) > self._epoch

    def _set_out(self, server: _Server, reason: str) -> None:
        if reason and not server.out:
            self.log.warning("a plog server is out", address=server.address, reason=reason)
        elif server.out and not reason:
            self.log.info("a plog server takes part again", address=server.address)
        server.out = reason

    async def _look(self, server: _Server) -> None:
        if self._registered.address(server.group.name, server.index) != server.address:
            await self._move(server)
        try:
            await server.client.connections.control()
        except ServerLost as error:
            server.whole.clear()
            self._set_out(server, str(error))
            await self._replace(server)
        if server.run_id != server.client.connections.run_id:  # it may have come back older, under its identity
            server.whole.clear()
            server.run_id = server.client.connections.run_id
        await self._complete(server, server.client)
        self._set_out(server, "")
        await self._plogs.delete_left(server.group.name, server.index)
        if self._plogs.lacks(server.group.name, server.index, server.client.connections.run_id):
            await self._plogs.include_all()

    async def _move(self, server: _Server) -> None:
        """Let the log go on with the server that was registered in the place of this one, which is lost from then on
        and the new one filled as any that came back empty.

        ``Unavailable`` while this server is one of the majority of some plog: the others are completed first.
        """
        group, address = server.group.name, self._registered.address(server.group.name, server.index)
        if reason := self._needed_for(server):
            await self._plogs.include_all()
            raise Unavailable(f"Redis at {server.address} is not left for {address} yet: {reason}")
        await self._plogs.move_server(self._registered.cluster, group, server.index, address)
        await server.client.move(address)
        server.whole.clear()
        self.log.info("a plog server is replaced", group=group, address=address)
        failpoint(SERVER_MOVED)

    def _needed_for(self, server: _Server) -> str:
        """Why some plog would have no majority without a server; an empty text if all have one."""
        group, needed = server.group.name, majority_of(len(server.group.servers))
        others = [one for one in self._servers if one.group is server.group and one is not server]
        for record in self._sealed_plogs():
            if record.plog_id.group == group and sum(record.plog_id in one.whole for one in others) < needed:
                return f"plog {record.plog_id} is not on a majority without it"
        if any(len(places - {server.index}) < needed for places in self._plogs.holders(group)):
            return "an open plog needs a majority without it first"
        return ""

    async def _complete(self, server: _Server, target: PlogClient) -> None:
        """Give the server every sealed plog that it is not known to have."""
        for record in self._sealed_plogs():
            if record.plog_id.group == server.group.name and record.plog_id not in server.whole:
                await self._repair(server, target, record)
                self._damaged(server).discard(record.plog_id)
                server.whole.add(record.plog_id)

    def _damaged(self, server: _Server) -> set[PlogId]:
        """The plogs of which a reader found the server's copy damaged."""
        return self._plogs.damaged(server.group.name, server.index)

    async def _replace(self, server: _Server) -> None:
        """Fill a server that is not the one on record, and admit its identity in the place of that."""
        identity = ""

        async def accept(shown: str | None) -> str | None:
            nonlocal identity
            identity = shown or identity
            return shown

        learner = PlogClient(server.address, self._settings, accept)
        try:
            await learner.connections.control()
            await self._complete(server, learner)
            failpoint(PLOGS_COPIED)
            await self._admit(server, identity)
        finally:
            learner.reset()
        server.client.reset()
        await server.client.connections.control()

    async def _admit(self, server: _Server, identity: str) -> None:
        """Put the identity on record, for this container alone."""
        for holders in self._plogs.holders(server.group.name):
            if len(await self._alive(server, holders)) < majority_of(len(server.group.servers)):
                await self._plogs.include_all()
                raise Unavailable(
                    f"Redis at {server.address} is not admitted yet: an open plog needs a majority without it first"
                )
        if await self._is_superseded():
            raise Fenced(f"container {self._container_id}: a later owner took over while a server was repaired")
        key = f"{server_identity_key(self._cluster_name, server.group.name, server.index)}/{self._container_id}"
        await self._cpo.replace_constant(key, await self._cpo.get_constant(key), identity)
        self.log.info("a plog server is admitted", address=server.address, identity=identity)
        failpoint(SERVER_ADMITTED)

    async def _alive(self, server: _Server, places: set[int]) -> list[_Server]:
        """The other servers of the group at these places that answer now and kept their data."""
        found = []
        for other in self._servers:
            if other.group is server.group and other is not server and other.index in places:
                try:
                    await other.client.connections.control()
                except PravegaError:
                    continue
                found.append(other)
        return found

    async def _repair(self, server: _Server, target: PlogClient, record: PlogRecord) -> None:
        """Give one copy the bytes and the seal that the others have, unless it has them."""
        plog_id, sealed = record.plog_id, record.sealed or 0
        status = await target.status(plog_id)
        if status is not None and status.token.epoch > self._epoch:
            raise Fenced(f"plog {plog_id}: epoch {status.token.epoch} took over")
        is_damaged = plog_id in self._damaged(server)
        if status is not None and status.sealed == sealed and not is_damaged:
            return
        holders = [one for one in self._servers if one.group is server.group and one is not server]
        others = GroupServers([one.client for one in holders])
        try:
            if is_damaged:  # what is intact in it is given up below: only if the others have it all
                async for entry in read_sealed(others, plog_id, self._epoch, 0, sealed):
                    await self._clock.sleep(len(entry.data) / repair_bytes_per_s)
            source, found = await self._source(others.clients, plog_id)
            token, end = await self._prepare(target, source, plog_id, sealed, status, found)
            async for entry in read_sealed(others, plog_id, self._epoch, end, sealed):
                await target.append_copy(plog_id, token, entry)
                self.copied_bytes += len(entry.data)
                await self._clock.sleep(len(entry.data) / repair_bytes_per_s)
        finally:
            for one, damaged in zip(holders, others.damaged, strict=True):
                self._damaged(one).update(damaged)
        await target.seal(plog_id, self._epoch, sealed, whole=True)
        if plog_id not in {one.plog_id for one in self._sealed_plogs()}:
            await target.delete(plog_id, self._container_id, self._epoch)  # it was truncated meanwhile
        self.log.info("a copy of a plog is repaired", address=server.address, plog_id=str(plog_id), bytes=sealed - end)
        failpoint(COPY_REPAIRED)

    async def _source(self, others: Sequence[PlogClient], plog_id: PlogId) -> tuple[PlogClient, PlogStatus]:
        """Another server that has the plog."""
        errors = []
        for other in others:
            try:
                status = await other.status(plog_id)
            except PravegaError as error:
                errors.append(str(error))
                continue
            if status is not None:
                return other, status
        raise Unavailable(f"plog {plog_id} is on no other server now: {'; '.join(errors)}")

    async def _prepare(
        self,
        target: PlogClient,
        source: PlogClient,
        plog_id: PlogId,
        sealed: int,
        old: PlogStatus | None,
        found: PlogStatus,
    ) -> tuple[FenceToken, int]:
        """Let the next entry of the target's copy go to its end; returns its token and that end, behind the last intact
        entry, 0 in a copy that was made new."""
        token = found.token if old is None else max(old.token, found.token)
        if old is not None:
            try:
                end, behind = await _intact(target, plog_id, old, sealed)
            except DataCorruption as error:
                self.log.warning("a damaged copy is made new", address=target.address, error=str(error))
                await target.fence_as(plog_id, token)  # its bytes are freed under the name of the new copy
            else:
                await target.fence_as(plog_id, token)
                if behind:
                    await target.trim(plog_id, token, end, behind)
                return token, end
        await target.remake(await source.header(plog_id), token)
        return token, 0


async def _intact(server: PlogClient, plog_id: PlogId, status: PlogStatus, sealed: int) -> tuple[int, list[int]]:
    """The end of the entries without a gap up to ``sealed``, and the ends of those behind it; ``DataCorruption`` if one
    is damaged."""
    end = 0
    behind: list[int] = []
    async for entry in server.read(plog_id, status.token, 0, offset_max):
        entry.decode(f"plog {plog_id} on {server.address}, offset {entry.start}")
        if entry.start == end and entry.end <= sealed and not behind:
            end = entry.end
        else:
            behind.append(entry.end)
    return end, behind
