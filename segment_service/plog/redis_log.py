"""Implements ``DurableDataLog`` over plogs on Redis: taking a container's log over, reading it, and writing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set
from typing import Final

from pravega_common.errors import ConfigurationError, DataCorruption, Fenced, Unavailable
from pravega_common.invariants import check, unreachable
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress, LogEntry, Replication
from segment_service.plog.chain import Chain, find_end, offset_max, sealed_entries
from segment_service.plog.group_choice import FixedChoice, GroupChoice
from segment_service.plog.group_contract import OpenPlog
from segment_service.plog.log_stream import LogStream
from segment_service.plog.loss_note import LossNote, LossNotes
from segment_service.plog.metadata_manager import EpochTooLow, MetadataManager
from segment_service.plog.metadata_records import FullRecord, InitRecord, PlogRecord, StreamRecord, SwitchRecord, apply
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.plog_offset_log import PlogOffsetLog
from segment_service.plog.plog_supply import WritePlog
from segment_service.plog.redis_connection import ConnectionLost
from segment_service.plog.repair import LogRepair

stream_name: Final = "data"
epoch_attempts_max: Final = 5
"""Epochs taken by one start because plogs showed higher ones."""

EPOCH_TAKEN = register("plog.log.epoch_taken")
DATA_FENCED = register("plog.log.data_fenced")
DATA_SEALED = register("plog.log.data_sealed")
DATA_CREATED = register("plog.log.data_created")
CLEANED_UP = register("plog.log.cleaned_up")


class RedisDataLog:
    """One container's log, owned by the store ``owner``. See ``DurableDataLog`` for the contract."""

    def __init__(
        self,
        container_id: int,
        owner: str,
        cpo: ControlPlaneOracle,
        cluster_name: str,
        settings: PlogSettings | None = None,
        clock: Clock | None = None,
        choice: GroupChoice | None = None,
    ) -> None:
        self._container_id = container_id
        self._owner = owner
        self._cpo = cpo
        self._cluster_name = cluster_name
        self._settings = settings or PlogSettings()
        self._clock = clock or SystemClock()
        self._notes = LossNotes(cpo, container_id)
        self._choice = choice or FixedChoice()
        self._client: PersistenceClient | None = None
        self._manager: MetadataManager | None = None
        self._stream: LogStream | None = None
        self.repair: LogRepair | None = None
        """The repair of its plogs, from the start on."""
        self._recovered = StreamRecord()
        self._read_done = False
        self._closed = False
        self._failure_callbacks: list[Callable[[BaseException], None]] = []

    @property
    def container_id(self) -> int:
        return self._container_id

    @property
    def epoch(self) -> int:
        return self._required_manager().epoch

    async def initialize(self, epoch_min: int = 1) -> None:
        check(self._stream is None and not self._closed, "the log was initialized twice", log=self._container_id)
        cluster = await self._cpo.get_persistence_cluster(self._cluster_name)
        if cluster is None:
            raise ConfigurationError(f"persistence cluster {self._cluster_name} is not registered in the CPO")
        client = self._client = PersistenceClient(cluster, self._settings, self._cpo, self._choice, self._container_id)
        try:
            self._stream = await self._take_over(client, epoch_min)
            for callback in self._failure_callbacks:
                self._stream.on_failure(callback)
            await self._stream.start()
            await self._start_repair(cluster, self._stream)
        except DataCorruption as error:
            client.close()
            if self._manager is not None and self._manager.epoch:
                await self._manager.explain_loss(error)
            raise
        except BaseException:
            client.close()
            raise

    async def discard(self, epoch_min: int) -> None:
        """Give up all that the log has, whether it can be read or not, for a restore from Tier 2: the next instance
        finds it empty. ``Fenced`` if the container is assigned to another owner."""
        cluster = await self._cpo.get_persistence_cluster(self._cluster_name)
        if cluster is None:
            raise ConfigurationError(f"persistence cluster {self._cluster_name} is not registered in the CPO")
        client = PersistenceClient(cluster, self._settings, self._cpo, self._choice, self._container_id)
        try:
            epoch = await self._cpo.take_epoch(self._container_id, self._owner, epoch_min)
            await MetadataManager(self._container_id, client, self._cpo, self._clock).start_over(epoch)
            await self._notes.begin_again(epoch)
        finally:
            client.close()

    async def _start_repair(self, cluster: PersistenceCluster, stream: LogStream) -> None:
        manager = self._required_manager()
        plogs = _OwnedPlogs(manager, stream, self._required_client())
        self.repair = LogRepair(
            self._container_id, manager.epoch, cluster, self._settings, self._cpo, self._clock, plogs
        )
        for callback in self._failure_callbacks:
            self.repair.on_failure(callback)
        await self.repair.start()

    async def check_owner(self) -> None:
        await self._required_manager().check_owner()

    async def read(self) -> AsyncIterator[LogEntry]:
        check(not self._read_done, "the log was read twice or after an append", log=self._container_id)
        self._read_done = True
        record = self._recovered
        chain = Chain()
        expected = record.truncated_at
        for plog in record.plogs:
            if plog.sealed is None:
                continue
            start = expected.offset if expected is not None and expected.plog_number == plog.number else 0
            if chain.next_sequence not in (None, plog.first_sequence):
                raise DataCorruption(f"plog {plog.number} begins with frame {plog.first_sequence}, not in sequence")
            if start == 0:
                chain.next_sequence, chain.last = plog.first_sequence, plog.previous
            async for entry in self._sealed_plog(plog, start, chain):
                if expected is not None and entry.address != expected:
                    raise DataCorruption(f"the first frame is at {entry.address}, the log begins at {expected}")
                expected = None
                yield entry
        if expected is not None:
            raise DataCorruption(f"the frame at {expected}, where the log begins, is gone: the server lost data")

    def at_offsets(self) -> PlogOffsetLog:
        """The same log by offsets: ``OffsetLog``."""
        return PlogOffsetLog(stream_name, self._required_stream(), self._required_manager(), self._required_client())

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        self._read_done = True
        return self._required_stream().append(frame, checksum)

    async def truncate(self, up_to: LogAddress) -> None:
        await self._required_stream().truncate(up_to)

    @property
    def replication(self) -> Replication:
        if self.repair is None:
            return Replication()
        return Replication(self.repair.under_replicated_plogs, self.repair.servers_out)

    @property
    def groups(self) -> Set[str]:
        return needed_groups(self._required_manager(), self._required_client())

    @property
    def failures_total(self) -> int:
        return 0 if self._stream is None else self._stream.failures_total

    @property
    def is_full(self) -> bool:
        return self._stream is not None and self._stream.is_full

    async def wait_full(self) -> None:
        await self._required_stream().wait_full()

    def relieve(self) -> None:
        self._required_stream().relieve()

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        self._failure_callbacks.append(callback)
        for part in (self._stream, self.repair):
            if part is not None:
                part.on_failure(callback)

    async def note_loss(self) -> None:
        stream = self._required_stream()
        await self._notes.put(LossNote(self.epoch, stream.acked_frames))

    async def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            await self._stream.stop()
        if self.repair is not None:
            await self.repair.stop()
        if self._client is not None:
            self._client.close()

    async def _sealed_plog(self, plog: PlogRecord, start: int, chain: Chain) -> AsyncIterator[LogEntry]:
        check(plog.sealed is not None, "reading a plog that is not sealed", number=plog.number)
        group = self._required_client().group_of(plog.plog_id)
        end = plog.sealed or 0
        entries = group.read_sealed(plog.plog_id, self.epoch, start, end)
        try:
            async for entry in sealed_entries(entries, plog.number, start, end, chain):
                yield entry
        except DataCorruption as error:  # freed by a later owner, or lost
            await self._required_manager().explain_loss(error)

    async def _take_over(self, client: PersistenceClient, epoch_min: int) -> LogStream:
        """Fence every earlier owner, find the end of the log, and register what was found under a new epoch."""
        manager = self._manager = MetadataManager(self._container_id, client, self._cpo, self._clock)
        known = await self._load_metadata(manager, epoch_min)
        record = manager.state.streams.get(stream_name, StreamRecord())
        if record.plogs:
            await manager.refuse_older_records(stream_name)
        chain, sealed = await self._recover_end(client, manager.epoch, record)
        number = record.next_number
        first = WritePlog(number, await client.create_plog(self._container_id, stream_name, number, manager.epoch))
        failpoint(DATA_CREATED)
        new = PlogRecord(number, first.plog.plog_id, chain.next_sequence or 0, chain.last)
        if known and record.plogs:
            await manager.start_plog(apply(manager.state, SwitchRecord(stream_name, sealed, new)))
        else:
            await manager.start_plog(apply(FullRecord(), InitRecord(stream_name, new)))
        self._recovered = manager.state.streams[stream_name]
        await manager.clean_up()
        failpoint(CLEANED_UP)
        return LogStream(stream_name, self._container_id, manager, client, self._clock, first, chain)

    async def _load_metadata(self, manager: MetadataManager, at_least: int) -> bool:
        """Take an epoch above all that were ever shown, and fence and read the metadata log with it."""
        for _ in range(epoch_attempts_max):
            epoch = await self._cpo.take_epoch(self._container_id, self._owner, at_least)
            failpoint(EPOCH_TAKEN)
            try:
                return await manager.load(epoch)
            except EpochTooLow as error:
                if await self._cpo.current_epoch(self._container_id) > epoch:
                    raise Fenced(f"container {self._container_id}: epoch {epoch} was superseded") from error
                at_least = error.shown + 1
        raise Unavailable(f"container {self._container_id}: no epoch found in {epoch_attempts_max} attempts")

    async def _recover_end(self, client: PersistenceClient, epoch: int, record: StreamRecord) -> tuple[Chain, int]:
        """Fence the last data plog and seal it at its last contiguous frame; the chain there, and that offset."""
        if not record.plogs:
            await self._notes.compare(0)
            return Chain(next_sequence=0), 0
        last = record.last
        group = client.group_of(last.plog_id)
        fenced = await group.fence(last.plog_id, epoch)
        failpoint(DATA_FENCED)
        chain = Chain(last.first_sequence, last.previous)
        try:
            end = await find_end(fenced.read(0, offset_max), last.number, 0, chain)
            await self._notes.compare(chain.next_sequence or 0)
        except DataCorruption as error:
            raise fenced.explained(error) from error
        await fenced.settle(end.offset)
        sealed = await fenced.seal(end.offset)
        if sealed != end.offset:
            raise DataCorruption(
                f"plog {last.plog_id} holds {end.offset} bytes, but was sealed at {sealed}: data was lost"
            )
        failpoint(DATA_SEALED)
        return chain, sealed

    def _required_client(self) -> PersistenceClient:
        return self._client or unreachable("the log was not initialized", log=self._container_id)

    def _required_manager(self) -> MetadataManager:
        return self._manager or unreachable("the log was not initialized", log=self._container_id)

    def _required_stream(self) -> LogStream:
        return self._stream or unreachable("the log was not initialized", log=self._container_id)


def needed_groups(manager: MetadataManager, client: PersistenceClient) -> Set[str]:
    """The names of the groups that have a plog which counts, and of those that may get new ones."""
    return {plog_id.group for plog_id in manager.plogs()} | {group.name for group in client.groups_for_new_plogs}


class _OwnedPlogs:
    """``RepairedLog`` of a log and its metadata."""

    def __init__(self, manager: MetadataManager, stream: LogStream, client: PersistenceClient) -> None:
        self._manager = manager
        self._stream = stream
        self._client = client
        self.move_server = client.move_server
        self.delete_left = client.delete_left
        self.damaged = client.damaged

    def sealed_plogs(self) -> list[PlogRecord]:
        return [plog for plog in self._manager.state.streams[stream_name].plogs if plog.sealed]

    def groups(self) -> Set[str]:
        return needed_groups(self._manager, self._client)

    def holders(self, group: str) -> list[set[int]]:
        found = [plog.required_quorum.holders() for plog in self._open(group)]
        return found if self._manager.open_plog is not None else [*found, set()]

    def open_plogs_lacking(self) -> int:
        metadata = self._manager.open_plog
        plogs = [*self._stream.open_plogs, *([] if metadata is None else [metadata])]
        return sum(not plog.is_whole for plog in plogs) + (metadata is None)

    def lacks(self, group: str, index: int, run_id: str) -> bool:
        plogs = self._open(group)
        for plog in plogs:
            copy = plog.copies.get(index)
            if copy is not None and copy.run_id != run_id:
                plog.required_quorum.drop(index, ConnectionLost("the server was restarted since it made its copy"))
        return any(index not in plog.required_quorum.members for plog in plogs)

    def _open(self, group: str) -> list[OpenPlog]:
        metadata = self._manager.open_plog
        plogs = [*self._stream.open_plogs, *([] if metadata is None else [metadata])]
        return [plog for plog in plogs if plog.plog_id.group == group]

    async def include_all(self) -> None:
        await self._manager.include_all()
        self._stream.include_all()
