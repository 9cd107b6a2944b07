"""Runs one container: the single writer of its segments, from taking over its log to going offline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tenacity import wait_fixed

from pravega_common.errors import (
    ContainerOffline,
    DataCorruption,
    Fenced,
    InvalidArgument,
    PravegaError,
    SegmentDamaged,
    SegmentNotFound,
    Throttled,
)
from pravega_common.names import index_segment_name, is_user_stream_segment
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.retrying import retrying
from segment_service.attribute_index.attribute_index import AttributeIndex
from segment_service.container.damage_watch import DamageWatch
from segment_service.container.log_verification import find_contradiction
from segment_service.container.stop_flush import flush_at_stop
from segment_service.container.table_maps import ContainerTableMap, ContainerTableMaps
from segment_service.container.writer_source import ContainerDataSource
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    NULL_ATTRIBUTE_VALUE,
    TABLE_INDEX_IN_TIER2,
    AttributeId,
    AttributeUpdate,
)
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import CheckOwner, DurableDataLog
from segment_service.contracts.log_identity import new_identity, unknown_identity
from segment_service.contracts.read_index import ReadIndex
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_storage import LogState, SegmentStorage
from segment_service.contracts.segment_store import (
    MergeResult,
    ReadResult,
    SegmentProperties,
    SegmentState,
    append_bytes_max,
    read_bytes_max,
)
from segment_service.contracts.sorted_map import SortedMaps
from segment_service.contracts.spawn import Spawn
from segment_service.contracts.table_maps import ATTRIBUTE_MAPS
from segment_service.contracts.writer_data_source import FlushingWriter, WriterDataSource
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.durable_log.durable_log import DurableLog
from segment_service.durable_log.memory_log import MemoryLog
from segment_service.durable_log.memory_state import MemoryState
from segment_service.durable_log.metadata_updater import initial_attributes
from segment_service.durable_log.requests import (
    AnswerT,
    AppendRequest,
    CreateRequest,
    DeleteRequest,
    LogRequest,
    MergeRequest,
    SealRequest,
    TruncateRequest,
    UpdateAttributesRequest,
)
from segment_service.event_index.indexer import EventIndexer
from segment_service.event_index.locator import BoundaryLocator
from segment_service.metadata.back_pressure import PendingBytes, StoreBackPressure
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.index_segments import index_of
from segment_service.metadata.quarantine import recheck_s_default
from segment_service.metadata_table.eviction import Evictor
from segment_service.metadata_table.metadata_table import MetadataTable, MetadataTableConfig, id_key, map_name
from segment_service.metadata_table.needed_lengths import ContainerNeededLengths
from segment_service.metadata_table.segment_loader import SegmentLoader

ReadIndexFactory = Callable[[ContainerMetadata, SegmentStorage, Spawn, CheckOwner], ReadIndex]
WriterFactory = Callable[[WriterDataSource, SegmentStorage], FlushingWriter]
T = TypeVar("T")

VERIFIED: Final = register("container.verified_before_checkpoint")
CHECKPOINT_WRITTEN: Final = register("container.checkpoint_before_mark")

loss_note_max_s: Final = 5.0
"""How long an owner tries to note in one place what was durable, when its log has lost some of it."""


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The settings of a container."""

    checkpoints: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    storage_retry_s: float = 1.0
    """Pause between attempts to reach Tier 2 while a container starts."""
    new_identity: Callable[[], bytes] = new_identity
    """Makes the identity of a log that has none."""
    metadata_table: MetadataTableConfig = field(default_factory=MetadataTableConfig)
    damage_recheck_s: float = recheck_s_default
    """After this time bytes of Tier 2 that could not be read are read again."""
    stop_flush_max_s: float = 6.0
    """Time in which a clean stop brings everything to Tier 2, below the 20 s after which a standalone kills a store; 0
    to leave all to the next start."""


class SegmentContainer(Service):
    """``SegmentStore`` for the segments of one container.

    Start: ask Tier 2 for its newest mark; fence the log and recover from it; compare the two; write a checkpoint, then
    a mark, start the storage writer, take requests. While Tier 2 does not answer, the start waits. A part that dies
    takes the container offline: waiting callers get ``UnknownOutcome`` or ``ContainerOffline``. A container starts
    once; the next owner is a new object.
    """

    def __init__(
        self,
        log: DurableDataLog,
        storage: SegmentStorage,
        maps: SortedMaps,
        read_index_factory: ReadIndexFactory,
        writer_factory: WriterFactory,
        back_pressure: StoreBackPressure,
        clock: Clock,
        config: ContainerConfig | None = None,
    ) -> None:
        super().__init__(f"container-{log.container_id}")
        self.container_id = log.container_id
        self.metadata = ContainerMetadata(log.container_id)
        self._config = config or ContainerConfig()
        self._clock = clock
        self._storage = storage
        self.own(self._storage)
        self._writer_factory = writer_factory
        self._writer: FlushingWriter | None = None
        self._back_pressure = back_pressure
        self.pending = PendingBytes(back_pressure)
        self.read_index = read_index_factory(self.metadata, storage, self.spawn, self._check_owner)
        state = MemoryState(self.metadata, MemoryLog(), self.read_index, self.pending)
        self.durable_log = DurableLog(log, state, clock, self._config.checkpoints, storage.mark)
        self.own(self.durable_log)
        self.source = ContainerDataSource(self.metadata, self.durable_log, self.read_index, self.pending)
        self._maps = maps
        self.own(self._maps)
        self.table = MetadataTable(
            self.metadata, maps.sorted_map(map_name), self._log_state, clock, self._config.metadata_table
        )
        self.own(self.table)
        self.table_maps = ContainerTableMaps(
            self.container_id, maps, self._log_state, storage.mark, self._has_segment, clock
        )
        self.own(self.table_maps)
        self.attribute_maps = ContainerTableMaps(
            self.container_id, maps, self._log_state, storage.mark, self._has_segment, clock, ATTRIBUTE_MAPS
        )
        self.own(self.attribute_maps)
        self.attributes = AttributeIndex(self.metadata, self.attribute_maps.table_map, self.durable_log, clock)
        self.own(self.attributes)
        self.source.on_gone = self._gone
        self._needed = ContainerNeededLengths(self.metadata, self.table.table)
        times_s = self._config.storage_retry_s, self._config.damage_recheck_s
        self._damage = DamageWatch(self.metadata, storage, self._check_owner, clock, self.log, *times_s)
        self._storage.watch_damage(self._needed, self._quarantine)
        self.loader = SegmentLoader(self.metadata, self.table.table, clock)
        self.own(self.loader)
        self.durable_log.look_up_in(self.loader, self.attributes)
        self.evictor = Evictor(
            self.metadata,
            self.loader,
            self.read_index,
            lambda: self.durable_log.acknowledged,
            self.durable_log.is_staged,
            self.delete,
            clock,
            self._config.metadata_table,
        )
        self.own(self.evictor)
        self.table.on_flush, self.loader.on_loaded = self.evictor.flushed, self.evictor.loaded
        self._locator = BoundaryLocator(self.metadata, self.read)
        self.event_index = EventIndexer(self, self.metadata, self._locator, clock, self.log)
        self._takes_requests = False
        self._is_identity_logged = False
        self.waits_for = ""
        """What the start waits for, and why; empty if it goes on."""

    @property
    def epoch(self) -> int:
        """The epoch of this owner of the log; greater than that of every earlier one."""
        return self.durable_log.epoch

    @property
    def unswept_segments(self) -> int:
        """Segments whose garbage in Tier 2 the last sweep left."""
        return self._storage.unswept_segments

    @property
    def sweep_failures(self) -> int:
        """Sweeps of Tier 2 that failed."""
        return self._storage.sweep_failures

    async def on_start(self) -> None:
        mark = await self._from_tier2(self._storage.newest_mark)
        # Names in Tier 2 carry epochs: also if the CPO went back, no name may be used a second time.
        self.durable_log.epoch_min = 1 if mark is None else mark.epoch + 1
        await self.durable_log.start()
        await self._from_tier2(self._verify)
        failpoint(VERIFIED)
        self._is_identity_logged = self.metadata.identity != unknown_identity
        if not self._is_identity_logged:
            self.metadata.identity = self._config.new_identity()
        await self._write_first_checkpoint()
        self._is_identity_logged = True
        failpoint(CHECKPOINT_WRITTEN)
        if self._writer is None:
            await self._from_tier2(self._open_storage)
            await self._start_writer()
        else:
            await self._from_tier2(self._mark_first_checkpoint)
        await self._from_tier2(self.table.table.open)
        self._needed.table_opened()
        await self._maps.start()
        await self.table.start()
        await self.loader.start()
        await self._from_tier2(self.loader.complete_pairs)
        await self.evictor.start()
        await self.table_maps.start()
        await self.attribute_maps.start()
        await self.attributes.start()
        self._takes_requests = True
        self.spawn(self._damage.run(), "recheck-damage")
        self.spawn(self._read_pairs_again(), "read-pairs-again")
        self.spawn(self.event_index.run(), "event-index")
        self.spawn(self.event_index.run_truncations(), "event-index-truncations")
        recovered = self.durable_log.recovered
        self.log.info(
            "container recovered",
            epoch=self.epoch,
            operations=recovered.operations,
            appended_bytes=recovered.appended_bytes,
            frames=recovered.frames,
            segments=len(self.metadata.ids),
        )

    async def on_stop(self) -> None:
        was_serving, self._takes_requests = self._serves, False
        try:
            if was_serving and self._writer is not None and self.failure is None and self._config.stop_flush_max_s:
                await flush_at_stop(self, self._writer, self._config.stop_flush_max_s)
        finally:
            await self._stop_parts()

    async def _stop_parts(self) -> None:
        if self._writer is not None:
            await self._writer.stop()  # before the read index, from which it takes the bytes
        for part in (self.attributes, self.attribute_maps, self.table_maps, self.evictor, self.loader, self.table):
            await part.stop()
        await self._maps.stop()
        self.read_index.close()
        if self.failure is not None:
            self.durable_log.fail(self.failure)  # at once, without waiting for what is on its way
        await self.durable_log.stop()
        if _tells_of_loss(self.failure) and self._writer is not None:
            await self._note_loss()
        await self._storage.close()
        self.pending.clear()

    async def _note_loss(self) -> None:
        """Note what was durable: the log has lost some of it, and no later owner may go on unaware. In Tier 2, and
        beside the log, as either may be away at the same time."""
        high_water = self.durable_log.last_durable
        places: dict[str, Callable[[], Awaitable[None]]] = {
            "Tier 2": lambda: self._storage.mark(high_water),
            "the control plane": self.durable_log.note_loss,
        }
        for place, note in places.items():
            try:
                async with asyncio.timeout(loss_note_max_s):
                    await note()
            except (PravegaError, TimeoutError) as error:
                self.log.error("what was durable is not noted", place=place, operation=high_water, error=repr(error))

    async def _write_first_checkpoint(self) -> None:
        """Write it, if need be after the storage writer made room in a Tier 1 that is full."""
        written = self.spawn(self.durable_log.checkpoint(), "first-checkpoint")
        full = self.spawn(self.durable_log.wait_full(), "wait-full")
        await asyncio.wait((written, full), return_when=asyncio.FIRST_COMPLETED)
        full.cancel()
        if not written.done():
            self.waits_for = "Tier 1: it is full, and must be freed first"
            await self._from_tier2(self._open_storage)
            self.waits_for = "Tier 1: it is full, what it holds is being written to Tier 2"
            await self._start_writer()
        await written
        self.waits_for = ""

    async def _mark_first_checkpoint(self) -> None:
        await self._storage.mark(self.durable_log.last_durable)

    async def _from_tier2(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of a call to Tier 2, which is made until there is one."""
        attempts = retrying(self._clock, wait=wait_fixed(self._config.storage_retry_s), on_error=self._waits_for_tier2)
        answer: T = await attempts(call)
        self.waits_for = ""
        return answer

    def _waits_for_tier2(self, error: BaseException) -> None:
        if not self.waits_for:
            self.log.warning("the start waits for Tier 2", error=repr(error), retry_s=self._config.storage_retry_s)
        self.waits_for = f"Tier 2: {error}"

    async def _verify(self) -> None:
        """``DataCorruption`` if this log is not the one that Tier 2 knows."""
        mark = await self._storage.newest_mark()
        recovered = self.durable_log.recovered
        first_object = "" if recovered.operations else await self._storage.first_object()
        table = await self.table.table.newest_stamp()
        problem = find_contradiction(self.metadata, recovered, mark, first_object, table)
        if problem is None and (mark is None or mark.epoch < self.epoch):
            return
        await self.durable_log.check_owner()  # what a later owner did is no contradiction
        if problem is not None:
            raise DataCorruption(problem)
        raise Fenced(f"container {self.container_id}: Tier 2 has a mark of an epoch above {self.epoch}")

    async def _open_storage(self) -> None:
        await self._storage.start(self.epoch, self._check_owner, self._log_state)

    def _log_state(self) -> LogState:
        metadata = self.metadata
        identity = metadata.identity if self._is_identity_logged else unknown_identity
        return LogState(identity, self.durable_log.last_durable, metadata.next_segment_id_durable)

    async def _start_writer(self) -> None:
        writer = self._writer_factory(self.source, self._storage)
        self._writer = writer
        self.own(writer)
        await writer.start()

    @property
    def _serves(self) -> bool:
        """Whether requests are answered. A log that failed answered callers that it does not know what became of their
        operations, some turns before this container ends: who looks then must not see a state without them, which the
        next owner may have."""
        return self._takes_requests and self.durable_log.failure is None

    async def _check_owner(self) -> None:
        await self.durable_log.check_owner()

    def _quarantine(self, segment_id: int, offset: int, length: int, error: SegmentDamaged) -> None:
        """Something that works in Tier 2 found damage."""
        self.spawn(self._damage.quarantine(segment_id, offset, length, error), "quarantine")

    async def _read_pairs_again(self) -> None:
        """Bring what was not read of the table."""
        while True:
            for name in list(self.metadata.unread_pairs):
                await self.loader.look_up(name)
                await self.event_index.read_again(name)
            await self._clock.sleep(self._config.damage_recheck_s)

    def container_of(self, segment: str) -> SegmentContainer:
        """As ``TableMapSource``."""
        return self

    def table_map(self, segment: str, segment_id: int) -> ContainerTableMap:
        if not self._serves:
            raise self._offline()
        return self.table_maps.table_map(segment_id)

    def _gone(self, segment: SegmentMetadata) -> None:
        if TABLE_INDEX_IN_TIER2 in segment.attributes:
            self.table_maps.deleted(segment.segment_id)
        if ATTRIBUTES_IN_TIER2 in segment.attributes:
            self.attribute_maps.deleted(segment.segment_id)

    async def _has_segment(self, segment_id: int) -> bool:
        found = self.metadata.segments.get(segment_id)
        if found is not None:
            return not found.is_deleted
        return await self.table.table.get(id_key(segment_id)) is not None

    async def create_segment(self, segment: str, attributes: Sequence[AttributeUpdate] = ()) -> None:
        initial = initial_attributes(segment, attributes)
        await self._submit(CreateRequest(segment, initial))
        if is_user_stream_segment(segment):
            await self._create_index(segment)

    async def _create_index(self, segment: str) -> None:
        """The segment is there, whatever becomes of this: an index that is missing is made when the segment grows."""
        created = self.metadata.by_name(segment)
        if created is None or index_of(self.metadata, created) is not None:
            return
        try:
            await self.event_index.create(created)
        except PravegaError as error:
            self.log.info("no event index yet", segment=segment, error=repr(error))

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        length = 0
        for buffer in data:
            length += len(buffer)
        refusal = self._refusal(length)
        if refusal is not None:
            return _refused(future, refusal)
        self.pending.accepted(length)
        self.durable_log.add(
            AppendRequest(
                future=future,
                segment=segment,
                data=data,
                length=length,
                updates=updates,
                expected_offset=expected_offset,
            )
        )
        return future

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        if offset < 0 or length_max < 0:
            raise InvalidArgument(f"{segment}: cannot read {length_max} bytes at offset {offset}; both must be ≥ 0")
        found = self._known(segment) or await self._live(segment)
        found.users += 1
        try:
            return await self.read_index.read(found.segment_id, offset, min(length_max, read_bytes_max))
        finally:
            found.users -= 1
            found.used_s = self._clock.monotonic_s()

    def read_in_memory(self, segment: str, offset: int, length_max: int) -> ReadResult | None:
        found = self._known(segment)
        return None if found is None else self.read_index.read_in_memory(found.segment_id, offset, length_max)

    async def get_info(self, segment: str) -> SegmentProperties:
        return _properties(self._known(segment) or await self._live(segment))

    def state_in_memory(self, segment: str) -> SegmentState | None:
        found = self._known(segment)
        if found is None:
            return None
        return SegmentState(found.start_offset, found.length, found.is_sealed, found.last_modified_ms)

    async def locate_offset(self, segment: str, offset: int) -> int:
        if offset < 0:
            raise InvalidArgument(f"{segment}: no event boundary can be found from offset {offset} on; it must be ≥ 0")
        found = self._known(segment) or await self._live(segment)
        found.users += 1
        try:
            return await self._locator.locate(found, offset)
        finally:
            found.users -= 1
            found.used_s = self._clock.monotonic_s()

    async def get_attribute(self, segment: str, attribute_id: AttributeId) -> int:
        found = self._known(segment) or await self._live(segment)
        value = found.attributes.get(attribute_id)
        return await self.attributes.get(found, attribute_id) if value is None else value

    async def update_attributes(self, segment: str, updates: Sequence[AttributeUpdate]) -> None:
        await self._submit(UpdateAttributesRequest(segment, updates))

    async def seal(self, segment: str) -> int:
        return await self._submit(SealRequest(segment))

    async def truncate(self, segment: str, offset: int) -> None:
        await self._submit(TruncateRequest(segment, offset))
        self.event_index.truncated(segment)

    async def delete(self, segment: str) -> None:
        deleted = self._submit_deletion(segment)
        # A segment that was not read may be refused where its index, which is in memory, would not be.
        may_be_refused = segment in self.metadata.unread_pairs and segment not in self.metadata.ids
        if not may_be_refused:
            self._delete_index(segment)
        try:
            await deleted
        finally:
            # A refusal knows this frame: with what holds the refusal it would be a cycle, left to the collector.
            del deleted
        if may_be_refused:
            self._delete_index(segment)

    def _delete_index(self, segment: str) -> None:
        """The index goes with its segment; one that a crash leaves behind goes with the next recovery."""
        if is_user_stream_segment(segment):
            self._submit_deletion(index_segment_name(segment))

    def _submit_deletion(self, segment: str) -> asyncio.Future[None]:
        """One of a damaged segment is taken beyond all limits: they may be reached because of what it holds."""
        request, found = DeleteRequest(segment), self.metadata.by_name(segment)
        if found is None or not self._serves or not self.durable_log.may_release(found.segment_id):
            return self._submit(request)
        return self.durable_log.release(found.segment_id, request)

    async def merge(self, target: str, source: str, updates: Sequence[AttributeUpdate] = ()) -> MergeResult:
        merged = await self._submit(MergeRequest(target, source, updates))
        self._delete_index(source)
        return merged

    def _submit(self, request: LogRequest[Any, AnswerT]) -> asyncio.Future[AnswerT]:
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        refusal = self._refusal(0)
        if refusal is not None:
            return _refused(future, refusal)
        request.future = future
        self.durable_log.add(request)
        return future

    def _refusal(self, length: int) -> PravegaError | None:
        """The reason why a request with ``length`` bytes cannot be taken now; ``None`` if it can."""
        if not self._serves:
            return self._offline()
        if self.durable_log.queue.is_full:
            return Throttled(f"container {self.container_id}: the queue of operations is full")
        if length and self._back_pressure.refuses:
            store = self._back_pressure
            return Throttled(f"{store.bytes} bytes wait for Tier 2, more than the limit of {store.bytes_hard_max}")
        if self._back_pressure.refuses_operations:
            store = self._back_pressure
            return Throttled(
                f"{store.operations} operations wait for Tier 2, more than the limit of {store.operations_hard_max}"
            )
        if length > append_bytes_max:
            return InvalidArgument(f"append of {length} bytes; at most {append_bytes_max} are allowed")
        return None

    def _offline(self) -> ContainerOffline:
        failure = self.failure or self.durable_log.failure
        reason = "failed" if failure is not None else self.state.value
        return ContainerOffline(f"container {self.container_id} takes no requests: it is {reason}")

    def _known(self, segment: str) -> SegmentMetadata | None:
        """The live segment if it is in memory; never waits."""
        if not self._serves:
            raise self._offline()
        found = self.metadata.by_name(segment)
        if found is not None:
            found.used_s = self._clock.monotonic_s()
        return found

    async def _live(self, segment: str) -> SegmentMetadata:
        """The live segment, looked up in Tier 2 if need be."""
        found = await self.loader.find(segment)
        if not self._serves:
            raise self._offline()
        if found is None:
            raise SegmentNotFound(segment)
        return found

    def fail(self, error: BaseException) -> None:
        """Go offline at once: nothing new is taken while the parts shut down."""
        self._takes_requests = False
        super().fail(error)


def _tells_of_loss(error: BaseException | None) -> bool:
    """Whether an error is about data that is not what was written, or was caused by one that is."""
    while error is not None and not isinstance(error, DataCorruption):
        error = error.__cause__
    return error is not None


def _properties(segment: SegmentMetadata) -> SegmentProperties:
    return SegmentProperties(
        name=segment.name,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        length=segment.length,
        storage_length=segment.storage_length,
        is_sealed=segment.is_sealed,
        last_modified_ms=segment.last_modified_ms,
        attributes={key: value for key, value in segment.attributes.items() if value != NULL_ATTRIBUTE_VALUE},
    )


def _refused(future: asyncio.Future[AnswerT], error: PravegaError) -> asyncio.Future[AnswerT]:
    future.set_exception(error)
    future.exception()  # marks it retrieved: a caller may have gone away
    return future
