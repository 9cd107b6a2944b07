"""Defines the requests that a container's log takes: what a caller wants, by the names of segments.

Validation resolves a request into the operation that is logged (``contracts/operations.py``), or refuses it. Names are
resolved only then, in queue order, so that calls take effect in the order in which they were made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pravega_common.errors import PravegaError
from pravega_common.invariants import check
from segment_service.contracts.attributes import AttributeId, AttributeUpdate
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.operations import (
    ActivateSegment,
    Append,
    Barrier,
    Checkpoint,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    Truncate,
    UpdateAttributes,
)
from segment_service.contracts.segment_store import MergeResult

LoggedT = TypeVar("LoggedT", bound=Operation)
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False, kw_only=True)
class LogRequest(Generic[LoggedT, AnswerT]):
    """A request on its way through the log, with the caller who waits for the answer.

    Validation sets one of ``operation`` and ``rejection``.
    """

    future: asyncio.Future[AnswerT] | None = None
    """``None`` if nobody waits."""
    operation: LoggedT | None = field(default=None, init=False)
    rejection: PravegaError | None = field(default=None, init=False)

    def answer_of(self, operation: LoggedT) -> AnswerT:
        """The result of the call, once the operation is durable."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answer the caller: the operation is durable and visible, or the request was rejected."""
        future = self.future
        if future is None or future.done():
            return
        operation = self.operation
        if operation is not None:
            future.set_result(self.answer_of(operation))
            return
        check(self.rejection is not None, "a request that was not validated is answered", request=self)
        if self.rejection is not None:
            self.fail(self.rejection)

    def fail(self, error: BaseException) -> None:
        """Answer the caller with an error."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # marks it retrieved: a caller may have gone away


AnyRequest = LogRequest[Any, Any]


@dataclass(slots=True, eq=False, kw_only=True)
class AppendRequest(LogRequest[Append, int]):
    """Add the joined buffers, ``length`` bytes, to a segment; answers the segment's length after them."""

    segment: str
    data: Sequence[Buffer]
    length: int
    updates: Sequence[AttributeUpdate] = ()
    expected_offset: int | None = None

    def answer_of(self, operation: Append) -> int:
        return operation.offset + operation.length


@dataclass(slots=True, eq=False)
class _DoneRequest(LogRequest[LoggedT, None]):
    """A request whose answer says only that it is done."""

    def answer_of(self, operation: LoggedT) -> None:
        return None


@dataclass(slots=True, eq=False)
class CreateRequest(_DoneRequest[MapSegment]):
    """Create an empty segment."""

    segment: str
    attributes: dict[AttributeId, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class UpdateAttributesRequest(_DoneRequest[UpdateAttributes]):
    """Update attributes of a segment, all or none."""

    segment: str
    updates: Sequence[AttributeUpdate]
    segment_id: int | None = None
    """The only segment of that name that is meant, which is in memory; ``None``: the one there is. With an id it is
    about a core attribute, and waits for nothing that others wait for, since they may wait for it."""


@dataclass(slots=True, eq=False)
class SealRequest(LogRequest[Seal, int]):
    """Refuse further appends to a segment; answers its final length."""

    segment: str

    def answer_of(self, operation: Seal) -> int:
        return operation.offset


@dataclass(slots=True, eq=False)
class TruncateRequest(_DoneRequest[Truncate]):
    """Raise the start offset of a segment."""

    segment: str
    offset: int


@dataclass(slots=True, eq=False)
class DeleteRequest(_DoneRequest[Delete]):
    """Delete a segment."""

    segment: str


@dataclass(slots=True, eq=False)
class MergeRequest(LogRequest[Merge, MergeResult]):
    """Append all of ``source`` to ``target``, and let the source disappear."""

    target: str
    source: str
    updates: Sequence[AttributeUpdate] = ()

    def answer_of(self, operation: Merge) -> MergeResult:
        return MergeResult(operation.offset + operation.length, operation.length)


@dataclass(slots=True, eq=False)
class CheckpointRequest(_DoneRequest[Checkpoint]):
    """Write a snapshot of the metadata."""


@dataclass(slots=True, eq=False)
class BarrierRequest(_DoneRequest[Barrier]):
    """Write an operation without an effect."""


@dataclass(slots=True, eq=False)
class ActivateRequest(_DoneRequest[ActivateSegment]):
    """Write what is known of a segment that came back from the metadata table."""


def names_in(request: AnyRequest) -> Sequence[str]:
    """The names of the segments whose calls a request stays in order with."""
    if isinstance(request, MergeRequest):
        return request.target, request.source
    if isinstance(request, CheckpointRequest | BarrierRequest | ActivateRequest):
        return ()
    if isinstance(request, UpdateAttributesRequest) and request.segment_id is not None:
        return ()
    name: str = request.segment  # type: ignore[attr-defined]  # every other request has one
    return (name,)
