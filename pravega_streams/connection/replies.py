"""Maps failure replies to errors (docs/wire-protocol.md 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pravega_common import errors
from pravega_common.wire import commands as c
from pravega_streams.connection.requests import MakeCommand
from pravega_streams.connection.token_refusals import refusal_of

R = TypeVar("R", bound=c.Command)


def error_of(reply: c.Command, segment: str, make: MakeCommand | None = None) -> errors.PravegaError | None:
    """The error that a reply stands for, or ``None`` for a good one.

    ``make``: builds the request again with the token that it had, to see whether a permission is missing.
    """
    made = _SEGMENT_ERRORS.get(type(reply))
    if made is not None:
        return made(getattr(reply, "segment", segment))
    match reply:
        case c.WrongHost():
            return errors.ContainerNotHosted(-1, f"{segment}: the store does not own its container")
        case c.SegmentIsTruncated():
            return errors.SegmentTruncated(reply.segment, reply.start_offset, reply.offset)
        case c.AuthTokenCheckFailed(error_code=c.TOKEN_EXPIRED):
            return errors.TokenExpired(f"{segment}: the token has ended")
        case c.AuthTokenCheckFailed():
            return refusal_of(segment, reply.error_code, None if make is None else make(reply.request_id))
        case c.OperationUnsupported():
            return errors.UnsupportedOperation(f"{segment}: the store does not support {reply.operation_name}")
        case c.ErrorMessage(error_code=c.DATA_CORRUPTION):
            return errors.DataCorruption(f"{segment}: {reply.message}")
        case c.ErrorMessage(error_code=c.THROTTLED):
            return errors.Throttled(f"{segment}: {reply.message}")
        case c.ErrorMessage():
            return errors.InvalidArgument(f"{segment}: {reply.message} (code {reply.error_code})")
        case c.NoReply():
            return errors.UnknownOutcome(f"{segment}: {reply.reason}")
        case c.InvalidEventNumber():
            return errors.BadEventNumber(segment, reply.writer_id, reply.event_number)
    return None


def expected_reply(
    reply: c.Command,
    segment: str,
    expected: tuple[type[R], ...],
    close: Callable[[str], None],
    make: MakeCommand | None = None,
) -> R:
    """The reply, if it is of an expected type; raises the error that it stands for (``make`` as of ``error_of``).

    ``UnknownOutcome`` for any other: ``close`` is called with the reason, as nothing on that connection can be trusted.
    """
    failure = error_of(reply, segment, make)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # it has this frame, and would wait for the garbage collector
    if not isinstance(reply, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        close(f"{type(reply).__name__} in answer to a request that expects {names}")
        raise errors.UnknownOutcome(f"{segment}: the store answered {type(reply).__name__}")
    return reply


def answered_by(reply: c.Command, requests: Mapping[int, c.Command]) -> int | None:
    """The id of the waiting request that a reply is to; None if it is to none of them.

    A plain Pravega that does not take the token of a read answers with the read's offset in the place of its id
    (docs/wire-protocol.md 2.3). ``UnknownOutcome`` if several reads wait at that offset.
    """
    request_id = getattr(reply, "request_id", None)
    if request_id is None or request_id in requests:
        return request_id
    if not isinstance(reply, c.AuthTokenCheckFailed):
        return None
    reads = [rid for rid, one in requests.items() if isinstance(one, c.ReadSegment) and one.offset == request_id]
    if len(reads) > 1:
        raise errors.UnknownOutcome(f"the token of one of {len(reads)} reads at offset {request_id} was refused")
    return reads[0] if reads else None


_SEGMENT_ERRORS: dict[type[c.Command], type[errors.SegmentError]] = {
    c.NoSuchSegment: errors.SegmentNotFound,
    c.SegmentIsSealed: errors.SegmentSealed,
    c.SegmentAlreadyExists: errors.SegmentExists,
    c.TableSegmentNotEmpty: errors.TableNotEmpty,
    c.TableKeyDoesNotExist: errors.KeyNotFound,
    c.TableKeyBadVersion: errors.BadKeyVersion,
}
