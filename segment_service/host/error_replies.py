"""Maps the errors of the store to replies on the wire (docs/wire-protocol.md 2.3).

A reply of None means: no reply tells the client the truth, close the connection. Clients treat a closed connection as
something to retry, after asking what became of their work.
"""

from __future__ import annotations

from pravega_common.errors import (
    AuthenticationFailed,
    BadKeyVersion,
    BadOffset,
    ContainerNotHosted,
    DataCorruption,
    Fenced,
    InvalidArgument,
    KeyNotFound,
    PravegaError,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    TableNotEmpty,
    TokenExpired,
    UnsupportedOperation,
)
from pravega_common.wire.commands import (
    DATA_CORRUPTION,
    ILLEGAL_ARGUMENT,
    TOKEN_CHECK_FAILED,
    TOKEN_EXPIRED,
    AuthTokenCheckFailed,
    Command,
    ErrorMessage,
    OperationUnsupported,
    SegmentAlreadyExists,
    SegmentIsSealed,
    SegmentIsTruncated,
    TableKeyBadVersion,
    TableKeyDoesNotExist,
    TableSegmentNotEmpty,
    WrongHost,
)
from pravega_common.wire.commands import (
    NoSuchSegment as NoSuchSegmentReply,
)


def error_reply(
    error: PravegaError, request_id: int, segment: str, operation: str, *, offset: int = -1
) -> Command | None:
    """The reply to a request about ``segment`` that failed with ``error``, or None to close the connection.

    ``offset`` is what the reply carries where it has an offset: readers match answers by it, so a read gives its own.
    """
    match error:
        case SegmentTruncated():
            return SegmentIsTruncated(request_id, segment, error.start_offset, "", error.offset)
        case BadOffset():
            return SegmentIsTruncated(request_id, segment, error.expected_offset, "", error.offset)
        case SegmentSealed():
            return SegmentIsSealed(request_id, segment, "", offset)
        case SegmentNotFound():
            return NoSuchSegmentReply(request_id, segment, "", offset)
        case SegmentExists():
            return SegmentAlreadyExists(request_id, segment)
        case ContainerNotHosted() | Fenced():
            return WrongHost(request_id, segment)
        case KeyNotFound():
            return TableKeyDoesNotExist(request_id, segment)
        case BadKeyVersion():
            return TableKeyBadVersion(request_id, segment)
        case TableNotEmpty():
            return TableSegmentNotEmpty(request_id, segment)
        case AuthenticationFailed():
            return AuthTokenCheckFailed(request_id, "", TOKEN_CHECK_FAILED)
        case TokenExpired():
            return AuthTokenCheckFailed(request_id, "", TOKEN_EXPIRED)
        case UnsupportedOperation():
            return OperationUnsupported(request_id, operation)
        case InvalidArgument():
            return ErrorMessage(request_id, segment, str(error), ILLEGAL_ARGUMENT)
        case DataCorruption():
            return ErrorMessage(request_id, segment, str(error), DATA_CORRUPTION)
        case _:
            return None


def operation_name(command: Command) -> str:
    """The name by which OperationUnsupported calls a command: its own, in lower camel case."""
    name = type(command).__name__
    return name[0].lower() + name[1:]
