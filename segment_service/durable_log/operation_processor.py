"""Validates queued requests, packs the operations into data frames and sends these to Tier 1.

This is the single writer of a container. There is no timer here. Below the window of frames in flight everything queued
is sent at once; at the window the processor waits for one frame to become durable, and what is queued meanwhile forms
the next frame.

When a frame is durable, the operations that end in it are committed to memory and their callers answered, in order.
A rejection is answered in order too, since it may rest on something that is not durable yet.
When a frame fails, the log is over: callers of operations that were sent get ``UnknownOutcome``, all others
``ContainerOffline``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from pravega_common.errors import ContainerOffline, PravegaError, RejectedError, SegmentDamaged, UnknownOutcome
from pravega_common.invariants import unreachable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.data_log import (
    DurableDataLog,
    LogAddress,
    frames_in_flight_bytes_max,
    frames_in_flight_max,
)
from segment_service.contracts.operations import Checkpoint, Operation
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.data_frame_builder import BuiltFrame, DataFrameBuilder
from segment_service.durable_log.memory_state import MemoryState
from segment_service.durable_log.metadata_updater import (
    AttributeNotHeld,
    OperationMetadataUpdater,
    SegmentInactive,
    SegmentNotLogged,
)
from segment_service.durable_log.parked_requests import ParkedRequests
from segment_service.durable_log.request_queue import LogRequestQueue
from segment_service.durable_log.requests import ActivateRequest, AnyRequest, AppendRequest, MergeRequest, SealRequest
from segment_service.durable_log.serializer import serialize

BEFORE_SEND: Final = register("durable_log.before_frame_is_sent")
BEFORE_COMMIT: Final = register("durable_log.frame_durable_before_commit")
BEFORE_ACK: Final = register("durable_log.committed_before_ack")


class _SentFrame:
    __slots__ = ("begins_with_checkpoint", "completed", "durable", "length", "sent_s")

    def __init__(self, frame: BuiltFrame[AnyRequest], durable: asyncio.Future[LogAddress], sent_s: float) -> None:
        self.sent_s = sent_s
        self.completed = frame.completed
        self.length = frame.length
        self.begins_with_checkpoint = frame.begins_with_checkpoint
        self.durable = durable


class ProcessorListener(Protocol):
    """Is notified of what became of the frames."""

    def frame_committed(self, operations: int, frame_bytes: int, latency_s: float) -> None:
        """A frame is durable, and its operations are applied. ``latency_s``: since it was sent."""
        ...

    def checkpoint_committed(self, sequence_number: int, address: LogAddress) -> None:
        """A checkpoint is durable; it begins the frame at ``address``."""
        ...

    def processor_failed(self, error: BaseException) -> None: ...


class OperationProcessor:
    """``run`` is the loop; it ends only by an error. ``fail`` ends everything that is on its way."""

    def __init__(
        self,
        log: DurableDataLog,
        queue: LogRequestQueue,
        updater: OperationMetadataUpdater,
        state: MemoryState,
        clock: Clock,
        listener: ProcessorListener,
    ) -> None:
        self._log = log
        self._queue = queue
        self._updater = updater
        self._state = state
        self._clock = clock
        self._listener = listener
        self._builder: DataFrameBuilder[AnyRequest] = DataFrameBuilder(log.epoch)
        self._in_flight: deque[_SentFrame] = deque()
        self._in_flight_bytes = 0
        self._window_waiter: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        self._parked = ParkedRequests(self._go_on, self._reject, updater.needs)
        self._checkpoint_address = LogAddress(0, 0)
        self.snapshot_bytes = 0
        """Size of the last checkpoint."""

    async def run(self) -> None:
        while True:
            if self._builder.is_empty:
                await self._queue.wait_not_empty()
            await self._wait_window()
            time_ms = self._clock.wall_ms()
            while (request := self._queue.pop()) is not None:
                self._process(request, time_ms)
                if self._builder.full:
                    await self._send_full()
            if self._has_room:
                self._builder.close()
                await self._send_full()

    @property
    def unanswered_s(self) -> float:
        """Seconds that the oldest frame in flight has been waiting; 0 without one."""
        return self._clock.monotonic_s() - self._in_flight[0].sent_s if self._in_flight else 0.0

    @property
    def _has_room(self) -> bool:
        return len(self._in_flight) < frames_in_flight_max and self._in_flight_bytes < frames_in_flight_bytes_max

    async def _wait_window(self) -> None:
        while not self._has_room:
            self._window_waiter = asyncio.get_running_loop().create_future()
            await self._window_waiter
        if self.failure is not None:
            raise self.failure

    async def _send_full(self) -> None:
        while self._builder.full:
            await self._wait_window()
            self._send_one()
            # One turn of the loop per frame: what was sent gets onto its way, and acks are not held up by packing.
            await asyncio.sleep(0)

    def _send_one(self) -> None:
        frame = self._builder.full[0]
        failpoint(BEFORE_SEND)
        durable = self._log.append(frame.buffers, frame.checksum)
        self._builder.full.popleft()  # only now: until it is sent, its callers are answered as not sent
        self._in_flight.append(_SentFrame(frame, durable, self._clock.monotonic_s()))
        self._in_flight_bytes += frame.length
        durable.add_done_callback(self._frame_done)

    def _process(self, request: AnyRequest, time_ms: int) -> None:
        """Validate one request and pack its operation, or reject it, or park it while a segment is looked up."""
        parked = self._parked
        if parked.names and parked.follow(request):
            return
        try:
            if type(request) is MergeRequest:
                self._seal_source(request, time_ms)
            operation = request.operation = self._updater.stage(request, time_ms)
        except SegmentNotLogged as found:
            self._log_activation(found.segment)
            self._process(request, time_ms)
            return
        except (SegmentInactive, AttributeNotHeld) as missing:
            self._park(request, missing)
            return
        except (RejectedError, SegmentDamaged) as error:
            self._reject(request, error)
            return
        except BaseException:
            request.fail(ContainerOffline("the operation could not be validated"))
            raise
        self._pack(operation, request)

    def _park(self, request: AnyRequest, missing: SegmentInactive | AttributeNotHeld) -> None:
        """Bring what is missing; the request, and those behind it on the same segments, wait."""
        updater = self._updater
        if isinstance(missing, SegmentInactive):
            inactive, name = updater.inactive, missing.name
            if inactive is None:
                unreachable("a request waits for a segment, and nobody looks it up", name=name)
            self._parked.park(request, name, {name}, lambda then: inactive.bring(name, then))
            return
        evicted, segment = updater.evicted, missing.segment
        if evicted is None:
            unreachable("a request waits for an attribute, and nobody reads it", segment=segment)
        wanted = updater.missing_attributes(segment, request.updates)  # type: ignore[attr-defined]  # it asked for one
        needed = {(segment.segment_id, attribute_id) for attribute_id in wanted}
        self._parked.park(request, segment.name, needed, lambda then: evicted.bring(segment, wanted, then))

    def _go_on(self, requests: Sequence[AnyRequest]) -> None:
        """Try parked requests again before all others. What the later ones need is read at once, not in turn."""
        evicted, updater = self._updater.evicted, self._updater
        wanted: dict[str, list[AttributeId]] = {}
        for request in requests if evicted is not None else ():
            if isinstance(request, AppendRequest) and request.updates:
                segment = updater.metadata.by_name(request.segment)
                missing = [] if segment is None else updater.missing_attributes(segment, request.updates)
                wanted.setdefault(request.segment, []).extend(missing)
        for name, attribute_ids in wanted.items():
            segment = updater.metadata.by_name(name)
            if evicted is not None and segment is not None and len(attribute_ids) > 1:
                evicted.bring(segment, list(dict.fromkeys(attribute_ids)), lambda _: None)
        self._queue.put_front(requests)

    def _seal_source(self, merge: MergeRequest, time_ms: int) -> None:
        """Log a seal in front of the merge of a segment that is open."""
        if self._updater.needs_seal(merge):
            seal: AnyRequest = SealRequest(merge.source)
            operation = seal.operation = self._updater.stage(seal, time_ms)
            self._pack(operation, seal)

    def _log_activation(self, segment: SegmentMetadata) -> None:
        request: AnyRequest = ActivateRequest()
        operation = request.operation = self._updater.stage_activation(segment)
        self._pack(operation, request)

    def _pack(self, operation: Operation, request: AnyRequest) -> None:
        head, body, length = serialize(operation)
        if type(operation) is Checkpoint:
            self.snapshot_bytes = len(operation.snapshot)
            self._builder.add_checkpoint(head, body, length, request)
        else:
            self._builder.add(head, body, length, request)

    def _reject(self, request: AnyRequest, error: PravegaError) -> None:
        # Without its traceback, whose frames know the request: only a long look of the collector would free the two.
        request.rejection = error.with_traceback(None)
        if self._builder.attach(request):
            return
        if self._builder.full:
            self._builder.full[-1].completed.append(request)
        elif self._in_flight:
            self._in_flight[-1].completed.append(request)
        else:
            self._answer(request)

    def _answer(self, request: AnyRequest) -> None:
        if request.rejection is not None and type(request) is AppendRequest:
            self._state.pending.dropped(request.length)
        request.complete()

    def _frame_done(self, durable: asyncio.Future[LogAddress]) -> None:
        """Commit every frame, from the oldest on, that is durable by now."""
        if not durable.cancelled():
            durable.exception()  # marks it retrieved: after a failure nobody asks the later frames
        if self.failure is not None:
            return
        try:
            while self._in_flight and self._in_flight[0].durable.done():
                frame = self._in_flight[0]
                self._commit(frame, frame.durable.result())
                self._in_flight.popleft()
                self._in_flight_bytes -= frame.length
        except BaseException as error:
            self.fail(error)
            self._listener.processor_failed(error)
        if self._window_waiter is not None and not self._window_waiter.done():
            self._window_waiter.set_result(None)

    def _commit(self, frame: _SentFrame, address: LogAddress) -> None:
        failpoint(BEFORE_COMMIT)
        operations = [request.operation for request in frame.completed if request.operation is not None]
        self._state.apply(operations)
        self._updater.release(operations)
        if frame.begins_with_checkpoint:
            self._checkpoint_address = address
        failpoint(BEFORE_ACK)
        for request in frame.completed:
            if type(request.operation) is Checkpoint:
                self._listener.checkpoint_committed(request.operation.sequence_number, self._checkpoint_address)
            self._answer(request)
        self._listener.frame_committed(len(operations), frame.length, self._clock.monotonic_s() - frame.sent_s)

    def fail(self, error: BaseException) -> None:
        """Answer all callers with an error: nothing more becomes durable. Only the first call has an effect."""
        if self.failure is not None:
            return
        self.failure = error
        self._updater.rollback()
        unknown = UnknownOutcome(f"container {self._log.container_id} went offline while it wrote: {error!r}")
        offline = ContainerOffline(f"container {self._log.container_id} went offline: {error!r}")
        for frame in self._in_flight:
            for request in frame.completed:
                request.fail(offline if request.rejection is not None else unknown)
        for request in self._builder.open_tags():
            request.fail(offline)
        for request in self._parked.take_all():
            request.fail(offline)
        while (queued := self._queue.pop()) is not None:
            queued.fail(offline)
