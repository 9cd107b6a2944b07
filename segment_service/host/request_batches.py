"""Serves batches: many requests about segments in one frame, each with a reply of its own (docs/wire-protocol.md 3.9).

A request is served as if it had come alone, so a batch adds no meaning, it saves frames and tasks. Requests are
decoded and served in groups, and the loop has its turn between them. One that needs no waiting has no task.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from pravega_common.errors import InvalidArgument
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import ByteView, Command
from pravega_common.wire.errors import TooManyItems, WireDecodeError
from pravega_common.wire.versions import batch_bytes_max, batch_requests_max

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
"""What may be in a batch: short requests about segments, with short replies."""

Answer = Callable[[Command], Coroutine[Any, Any, Command]]
AnswerAtOnce = Callable[[Command], Command | None]


class CloseConnection(Exception):
    """The request has no reply that would be true; the connection is to be closed for the reason given."""


class RequestBatches:
    """Serves batches of all connections; holds no state of a connection."""

    def __init__(self, answer: Answer, answer_at_once: AnswerAtOnce, clock: Clock) -> None:
        """``answer`` serves one request; it raises ``CloseConnection`` where no reply is right. ``answer_at_once`` does
        the same, or gives None where there is something to wait for."""
        self._answer = answer
        self._answer_at_once = answer_at_once
        self._clock = clock

    async def answer(self, batch: wire.RequestBatch) -> Command:
        """The replies in the order of the requests; ErrorMessage, and nothing done, for a batch above a limit."""
        size = sum(map(len, batch.requests))
        if len(batch.requests) > batch_requests_max or size > batch_bytes_max:
            reason = (
                f"a batch of {len(batch.requests)} requests with {size} bytes; "
                f"the limits are {batch_requests_max} and {batch_bytes_max}"
            )
            return wire.ErrorMessage(batch.request_id, "", reason, wire.ILLEGAL_ARGUMENT)
        replies: list[ByteView] = []
        group: list[Command] = []
        weight = 0
        slices = TimeSlices(self._clock)
        for frame in batch.requests:
            request = _decoded(frame)
            group.append(request)
            weight += len(request.sources) if isinstance(request, wire.MergeSegmentsBatch) else 1
            if weight >= requests_at_work_max:
                replies += await self._served(group)
                group, weight = [], 0
                await slices.step()
        replies += await self._served(group)
        return wire.RequestBatchAnswered(batch.request_id, tuple(replies))

    async def _served(self, group: list[Command]) -> list[bytes]:
        """One reply for each, also where one fails as nobody foresaw: that is raised when all have ended."""
        replies = [self._reply_at_once(request) for request in group]
        waiting = [place for place, reply in enumerate(replies) if reply is None]
        for place, reply in zip(waiting, await all_ended(self._reply(group[place]) for place in waiting), strict=True):
            replies[place] = reply
        return [codec.encode(reply) for reply in replies if reply is not None]

    def _reply_at_once(self, request: Any) -> Command | None:
        if isinstance(request, wire.ErrorMessage):
            return request
        try:
            return self._answer_at_once(request)
        except CloseConnection as error:
            return _no_reply(request, error)

    async def _reply(self, request: Any) -> Command:
        try:
            return await self._answer(request)
        except CloseConnection as error:
            return _no_reply(request, error)


def _no_reply(request: Any, error: CloseConnection) -> Command:
    return wire.NoReply(request.request_id, str(error)[:reason_chars_max])


def _decoded(frame: ByteView) -> Command:
    """The request of a frame, or the ErrorMessage that answers it; ``CloseConnection`` if it is malformed.

    That closes the connection in the middle of a batch, as a malformed frame does in the middle of a stream of them.
    """
    try:
        request = codec.decode_frame(frame, batch_requests_max)
    except TooManyItems as error:
        return wire.ErrorMessage(error.request_id, error.segment, str(error), wire.ILLEGAL_ARGUMENT)
    except (WireDecodeError, InvalidArgument) as error:
        raise CloseConnection(f"in a batch: {error}") from error
    if not isinstance(request, _BATCHED):
        raise CloseConnection(f"{type(request).__name__} is not a request that a batch may hold")
    return request
