"""Serves batches: many requests about segments in one frame, each with a reply of its own (docs/wire-protocol.md 3.9).

A request is served as if it had come alone, so a batch adds no meaning, it saves frames and tasks. Requests are
decoded and served in groups, and the loop has its turn between them. Questions about segments, which an idle source
asks again and again, have a shorter way (``info_batches.py``), and a task only where there is something to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from pravega_common.errors import InvalidArgument, Outcome, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import ByteView, Command
from pravega_common.wire.errors import TooManyItems, WireDecodeError
from pravega_common.wire.versions import batch_bytes_max, batch_requests_max
from segment_service.host.info_batches import InfoBatch, RememberedBatches, StateOf, begins_with_info
from segment_service.host.read_batches import ReadBatches, begins_with_read, refusal

requests_at_work_max: Final = 256
"""Requests of one batch that are being served at a time; a merge counts as many as it has sources. Each group costs a
round trip to Tier 1, and some 10 ms of the loop."""
reason_chars_max: Final = 1_000
"""Characters of the reason why a request of a batch has no reply."""

_BATCHED: Final = (
    wire.GetStreamSegmentInfo,
    wire.CreateSegment,
    wire.SealSegment,
    wire.DeleteSegment,
    wire.TruncateSegment,
    wire.UpdateSegmentPolicy,
    wire.MergeSegmentsBatch,
)
"""What may be in a batch, but for reads, which have batches of their own: short requests with short replies."""
_SERVED: Final = (*_BATCHED, wire.ErrorMessage)
"""With the reply to a request that was refused when it was decoded."""

Answer = Callable[[Command], Coroutine[Any, Any, Command]]


class CloseConnection(Exception):
    """The request has no reply that would be true; the connection is to be closed for the reason given."""

    @property
    def is_of_peer(self) -> bool:
        """Whether the peer asked for what can never be; else the store failed."""
        return not isinstance(self.__cause__, PravegaError) or self.__cause__.outcome is Outcome.REJECTED


class RequestBatches:
    """Serves batches of all connections; holds no state of a connection."""

    def __init__(self, answer: Answer, reads: ReadBatches, state_of: StateOf, clock: Clock) -> None:
        """``answer`` serves one request; it raises ``CloseConnection`` where no reply is right."""
        self._answer = answer
        self._reads = reads
        self._state_of = state_of
        self._clock = clock
        self._remembered = RememberedBatches()

    async def answer(self, batch: wire.RequestBatch) -> Command:
        """The replies in the order of the requests; ErrorMessage, and nothing done, for a batch above a limit."""
        size = sum(map(len, batch.requests))
        if len(batch.requests) > batch_requests_max or size > batch_bytes_max:
            reason = (
                f"a batch of {len(batch.requests)} requests with {size} bytes; "
                f"the limits are {batch_requests_max} and {batch_bytes_max}"
            )
            return wire.ErrorMessage(batch.request_id, "", reason, wire.ILLEGAL_ARGUMENT)
        if begins_with_read(batch.requests):
            return await self._answered_reads(batch)
        replies = await self._infos(batch.requests) if begins_with_info(batch.requests) else None
        if replies is None:
            replies = await self._replies(batch.requests)
        return wire.RequestBatchAnswered(batch.request_id, tuple(replies))

    async def _infos(self, frames: Sequence[ByteView]) -> list[bytes] | None:
        """The replies to questions about segments; None for a batch with anything else in it."""
        asked = b"".join(frames)
        batch = self._remembered.find(asked)
        if batch is None:
            questions = await self._decoded_infos(frames)
            if questions is None:
                return None
            batch = InfoBatch(questions)
            self._remembered.came(asked, batch)
        replies, missing = batch.replies(self._state_of)
        for first in range(0, len(missing), requests_at_work_max):
            places = missing[first : first + requests_at_work_max]
            served = await self._served([batch.questions[place] for place in places])
            for place, reply in zip(places, served, strict=True):
                replies[place] = reply
        return replies

    async def _answered_reads(self, batch: wire.RequestBatch) -> Command:
        reads: list[wire.ReadSegment] = []
        slices = TimeSlices(self._clock)
        for frame in batch.requests:
            request = _request_of(frame)
            if not isinstance(request, wire.ReadSegment):
                raise CloseConnection(f"{type(request).__name__} is not a request that a batch of reads may hold")
            reads.append(request)
        refused = refusal(batch.request_id, reads)
        if refused is not None:
            return refused
        replies = await self._reads.replies(reads, slices)
        return wire.RequestBatchAnswered(batch.request_id, tuple(replies))

    async def _decoded_infos(self, frames: Sequence[ByteView]) -> list[wire.GetStreamSegmentInfo] | None:
        questions: list[wire.GetStreamSegmentInfo] = []
        slices = TimeSlices(self._clock, steps_per_reading=requests_at_work_max)
        for frame in frames:
            question = _decoded(frame)
            if not isinstance(question, wire.GetStreamSegmentInfo):
                return None
            questions.append(question)
            await slices.step()
        return questions

    async def _replies(self, frames: Sequence[ByteView]) -> list[bytes]:
        replies: list[bytes] = []
        group: list[Command] = []
        weight = 0
        slices = TimeSlices(self._clock)
        for frame in frames:
            request = _decoded(frame)
            group.append(request)
            weight += len(request.sources) if isinstance(request, wire.MergeSegmentsBatch) else 1
            if weight >= requests_at_work_max:
                replies += await self._served(group)
                group, weight = [], 0
                await slices.step()
        return replies + await self._served(group)

    async def _served(self, group: Sequence[Command]) -> list[bytes]:
        """One reply for each, also where one fails as nobody foresaw: that is raised when all have ended."""
        return [codec.encode(reply) for reply in await all_ended(map(self._reply, group))]

    async def _reply(self, request: Any) -> Command:
        if isinstance(request, wire.ErrorMessage):  # It was refused when it was decoded.
            return request
        try:
            return await self._answer(request)
        except CloseConnection as error:
            return no_reply(request, error)


def no_reply(request: Any, error: CloseConnection) -> Command:
    """The reply to a request of a batch that has no true one."""
    return wire.NoReply(request.request_id, str(error)[:reason_chars_max])


def _decoded(frame: ByteView) -> Command:
    """The request of a frame as a batch may hold it, or the ErrorMessage that answers it."""
    request = _request_of(frame)
    if not isinstance(request, _SERVED):
        raise CloseConnection(f"{type(request).__name__} is not a request that a batch may hold")
    return request


def _request_of(frame: ByteView) -> Command:
    """The request of a frame, or the ErrorMessage that answers it; ``CloseConnection`` if it is malformed.

    That closes the connection in the middle of a batch, as a malformed frame does in the middle of a stream of them.
    """
    try:
        request = codec.decode_frame(frame, batch_requests_max)
    except TooManyItems as error:
        return wire.ErrorMessage(error.request_id, error.segment, str(error), wire.ILLEGAL_ARGUMENT)
    except (WireDecodeError, InvalidArgument) as error:
        raise CloseConnection(f"in a batch: {error}") from error
    if isinstance(request, wire.ErrorMessage):
        raise CloseConnection("ErrorMessage is not a request that a batch may hold")
    return request
