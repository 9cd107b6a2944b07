"""Makes the requests to one container durable in order, and applies them to its memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Final

from pravega_common.errors import ContainerOffline, FailedError, Fenced, PravegaError, UnknownOutcome
from pravega_common.invariants import unreachable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.latency import LatencyCounts
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.data_log import DurableDataLog, LogAddress, Replication
from segment_service.contracts.evicted_attributes import EvictedAttributes
from segment_service.contracts.inactive_segments import InactiveSegments
from segment_service.contracts.operations import Operation
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.durable_log.memory_state import MemoryState
from segment_service.durable_log.metadata_updater import OperationMetadataUpdater
from segment_service.durable_log.operation_processor import OperationProcessor
from segment_service.durable_log.recovery import Recovered, recover
from segment_service.durable_log.releases import Releases
from segment_service.durable_log.request_queue import LogRequestQueue
from segment_service.durable_log.requests import (
    AnyRequest,
    BarrierRequest,
    CheckpointRequest,
    DeleteRequest,
    LogRequest,
    UpdateAttributesRequest,
)

AFTER_FENCE: Final = register("durable_log.fenced_before_recovery")
AFTER_RECOVERY: Final = register("durable_log.recovered_before_checkpoint")
BEFORE_TRUNCATE: Final = register("durable_log.acknowledged_before_truncate")

TIER1_FULL: Final = register("durable_log.tier1_full")

full_look_s: Final = 0.1
"""Pause between two looks at a log that is full."""

freed_bytes_min: Final = 1024 * 1024
"""Bytes logged since the last checkpoint that are worth one more, when Tier 1 has little memory left."""

owner_look_s: Final = 10.0
"""How long an owner may write nothing before it asks whether somebody else took its log over."""

drain_time_max_s: Final = 10.0
"""Time that a clean stop waits for operations on their way."""


class DurableLog(Service):
    """Start = take the log over and recover; nothing is written. Then ``checkpoint``, then ``add``.

    Every error of the data log, and every broken invariant, ends this service; its callers get an error first.
    """

    def __init__(
        self,
        log: DurableDataLog,
        state: MemoryState,
        clock: Clock,
        policy: CheckpointPolicy,
        before_truncation: Callable[[int], Awaitable[None]],
    ) -> None:
        """``before_truncation``: awaited before each truncation of Tier 1, with the number up to which Tier 2 has all.
        If it fails, the truncation is left to a later one."""
        super().__init__(f"durable-log-{log.container_id}")
        self.epoch_min = 1
        """The epoch that the start takes is at least this."""
        self._before_truncation = before_truncation
        self._log = log
        self.own(log)
        self._state = state
        self._clock = clock
        self._policy = policy
        self.queue = LogRequestQueue()
        self._updater = OperationMetadataUpdater(state.metadata)
        self._processor: OperationProcessor | None = None
        self._truncation_points: deque[tuple[int, LogAddress]] = deque()
        self._truncated_at = 0
        self._acknowledged = 0
        self._operations_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._checkpoint_pending = False
        self._releases = Releases()
        self.recovered = Recovered()
        self.frame_latencies = LatencyCounts()
        """From sending a frame to its being durable."""
        self.operations_total = 0
        self.frames_total = 0
        self.bytes_total = 0
        self.checkpoints_total = 0

    @property
    def epoch(self) -> int:
        return self._log.epoch

    @property
    def memory_length(self) -> int:
        """Operations that the storage writer has not acknowledged."""
        return len(self._state.memory_log)

    @property
    def last_durable(self) -> int:
        """Sequence number of the last operation that is known to be durable."""
        return self._state.memory_log.last_sequence_number

    async def on_start(self) -> None:
        await self._log.initialize(self.epoch_min)
        failpoint(AFTER_FENCE)
        self.recovered = await recover(self._log, self._state, self._clock)
        self._truncation_points.extend(self.recovered.truncation_points)
        self._processor = OperationProcessor(
            self._log, self.queue, self._updater, self._state, self._clock, listener=self
        )
        self.spawn(self._processor.run(), "operation-processor")
        self.spawn(self._watch_full(), "watch-full")
        self.spawn(self._watch_owner(), "watch-owner")
        failpoint(AFTER_RECOVERY)

    @property
    def acknowledged(self) -> int:
        """Number up to which the storage writer is through with all operations."""
        return self._acknowledged

    def is_staged(self, segment_id: int) -> bool:
        """Whether an operation on the segment is on its way to the log."""
        return self._updater.is_staged(segment_id)

    def look_up_in(self, inactive: InactiveSegments, evicted: EvictedAttributes) -> None:
        """Requests may be about segments, and attributes, that are not in memory; called before ``start``."""
        self._updater.inactive = inactive
        self._updater.evicted = evicted

    def note_index(self, segment: SegmentMetadata, high_water: int) -> Awaitable[None]:
        """As ``AttributeLog``, whose other methods follow."""
        update = AttributeUpdate(ATTRIBUTES_IN_TIER2, AttributeUpdateType.REPLACE, high_water)
        return self._enqueue(UpdateAttributesRequest(segment.name, (update,), segment.segment_id))

    def is_attribute_staged(self, segment_id: int, attribute_id: AttributeId) -> bool:
        return self._updater.is_attribute_staged(segment_id, attribute_id)

    def settle_attributes(self, segment_id: int) -> None:
        self._updater.settle(segment_id)

    def settled_attributes(self, segment_id: int) -> None:
        self._updater.settled(segment_id)

    @property
    def unanswered_s(self) -> float:
        """Seconds that the oldest frame sent to Tier 1 has been waiting; 0 without one."""
        return 0.0 if self._processor is None else self._processor.unanswered_s

    @property
    def replication(self) -> Replication:
        """The state of the log's copies."""
        return self._log.replication

    @property
    def groups(self) -> Set[str]:
        """See ``DurableDataLog.groups``."""
        return self._log.groups

    @property
    def failures_total(self) -> int:
        """Appends that Tier 1 failed and the log survived."""
        return self._log.failures_total

    @property
    def is_full(self) -> bool:
        """Whether operations wait because Tier 1 has no memory for them."""
        return self._log.is_full

    async def wait_full(self) -> None:
        await self._log.wait_full()

    def checkpoint_soon(self) -> None:
        """Write a checkpoint, unless there would be hardly more to truncate than at the last one."""
        if not self._checkpoint_pending and self._bytes_since_checkpoint >= freed_bytes_min:
            self._checkpoint_pending = True
            self._enqueue(CheckpointRequest())

    async def _watch_full(self) -> None:
        """Get a full Tier 1 going again: what is in Tier 2 is truncated at the checkpoints there are, and when that was
        not enough, what waits goes in all the same, with a checkpoint behind it at which all before is freed. So does
        what lets a segment go that the storage writer holds: Tier 2 gets nothing more before that."""
        while True:
            await self._log.wait_full()
            self.log.warning("Tier 1 is full: appends wait until Tier 2 has what it holds", waiting=len(self.queue))
            failpoint(TIER1_FULL)
            while self._log.is_full:
                if not self._checkpoint_pending:
                    self._checkpoint_pending = True
                    self._enqueue(CheckpointRequest())
                is_held = self._state.metadata.quarantine.is_holding
                if not len(self._state.memory_log) or (is_held and self._releases.may_exceed(self.frames_total)):
                    self._log.relieve()
                await self._clock.sleep(full_look_s)
            self.log.info("Tier 1 takes appends again")

    async def _watch_owner(self) -> None:
        """End an idle owner whose log was taken over. The next frame would tell it; until then it would answer reads
        without what the later owner acknowledged, even when that one is gone."""
        while True:
            frames = self.frames_total
            await self._clock.sleep(owner_look_s)
            if self.frames_total == frames:
                with contextlib.suppress(FailedError, UnknownOutcome):  # not known: it is asked again
                    await self.check_owner()

    async def check_owner(self) -> None:
        """As ``DurableDataLog.check_owner``; a log that was taken over is over."""
        try:
            await self._log.check_owner()
        except Fenced as error:
            self.fail(error)
            raise

    async def note_loss(self) -> None:
        """See ``DurableDataLog.note_loss``."""
        await self._log.note_loss()

    async def on_stop(self) -> None:
        processor = self._processor
        if processor is not None:
            if self.failure is None:
                await self._drain()
            processor.fail(self.failure or ContainerOffline("the container was stopped"))
        await self._log.close()

    async def _drain(self) -> None:
        """Let what was accepted become durable, within a limit of time."""
        try:
            await asyncio.wait_for(self.barrier(), drain_time_max_s)
        except (PravegaError, TimeoutError) as error:
            self.log.warning("stopping with operations on their way", error=repr(error))

    def add(self, request: AnyRequest) -> None:
        """Register a request, in call order. Its future is done once it is durable and applied, or refused.

        The caller has looked at ``queue.is_full``.
        """
        if self._takes(request):
            self.queue.put(request)

    def _takes(self, request: AnyRequest) -> bool:
        """Whether requests are processed; if not, this one is answered."""
        processor = self._processor
        if processor is None:
            unreachable("request before recovery", container=self._log.container_id)
        if processor.failure is None:
            return True
        # The service may need some turns of the loop to stop.
        request.fail(ContainerOffline(f"container {self._log.container_id} went offline: {processor.failure!r}"))
        return False

    def may_release(self, segment_id: int) -> bool:
        """Whether ``release`` takes the deletion of a segment: it is damaged, and no other deletion of it waits."""
        return self._state.metadata.quarantine.reason(segment_id) is not None and not self._releases.has(segment_id)

    def release(self, segment_id: int, request: DeleteRequest) -> asyncio.Future[None]:
        """Register the deletion of a segment as ``add`` does, however much waits in the queue and in Tier 1, which may
        be there because of this segment: in a full Tier 1 it goes first, and without room."""
        future = request.future = asyncio.get_running_loop().create_future()
        if self._takes(request):
            self._releases.add(segment_id, future, self.frames_total)
            if self._log.is_full:
                self.queue.put_front([request])
            else:
                self.queue.put(request)
        return future

    async def checkpoint(self) -> None:
        """Write a checkpoint and wait until it is durable; it goes into a full Tier 1 that nothing else would free."""
        self._checkpoint_pending = True
        durable = self._enqueue(CheckpointRequest())
        self._releases.add(None, durable, self.frames_total)
        await durable

    async def barrier(self) -> None:
        """Wait until an operation added now is durable, and so all before it."""
        await self._enqueue(BarrierRequest())

    async def read(self, after: int, count_max: int) -> Sequence[Operation]:
        """As ``WriterDataSource.read_operations``."""
        return await self._state.memory_log.read(after, count_max)

    async def acknowledge(self, sequence_number: int) -> None:
        """Forget the operations up to this number, which are in Tier 2; truncate Tier 1 at the last checkpoint in them.

        A truncation that fails is made up for by a later one.
        """
        while self._state.acknowledged(sequence_number):  # noqa: ASYNC110 - each call forgets some
            await asyncio.sleep(0)  # a million operations take half a second
        self._acknowledged = sequence_number
        points = self._truncation_points
        while len(points) > 1 and points[1][0] <= sequence_number:
            points.popleft()
        if not points or points[0][0] > sequence_number or points[0][0] <= self._truncated_at:
            return
        checkpoint, address = points[0]
        try:
            await self._before_truncation(sequence_number)
            failpoint(BEFORE_TRUNCATE)
            await self._log.truncate(address)
        except (FailedError, UnknownOutcome) as error:
            self.log.warning("truncation of the log failed, a later one will do", error=repr(error))
            return
        self._truncated_at = checkpoint

    def frame_committed(self, operations: int, frame_bytes: int, latency_s: float) -> None:
        self.frame_latencies.note(latency_s)
        self.operations_total += operations
        self.frames_total += 1
        self.bytes_total += frame_bytes
        self._operations_since_checkpoint += operations
        self._bytes_since_checkpoint += frame_bytes
        if self._checkpoint_pending or self._processor is None:
            return
        if self._policy.is_due(
            self._operations_since_checkpoint, self._bytes_since_checkpoint, self._processor.snapshot_bytes
        ):
            self._checkpoint_pending = True
            self._enqueue(CheckpointRequest())

    def checkpoint_committed(self, sequence_number: int, address: LogAddress) -> None:
        self.checkpoints_total += 1
        self._truncation_points.append((sequence_number, address))
        self._operations_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._checkpoint_pending = False

    def processor_failed(self, error: BaseException) -> None:
        self.fail(error)

    def _enqueue(self, request: LogRequest[Any, None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request.future = future
        self.add(request)
        return future
