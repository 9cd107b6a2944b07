"""Defines the errors of client, controller and segment store as one tree.

Every failed call has one of four outcomes, and code that retries reads ``outcome`` and never lists types::

    PravegaError
    ├── RejectedError                 not done, and the same call will not succeed
    │   ├── InvalidArgument
    │   │   └── CutTruncated          controller_service
    │   ├── UnsupportedOperation
    │   ├── ConfigurationError
    │   │   ├── JobDiffers
    │   │   └── JobMisplaced
    │   ├── AuthenticationFailed
    │   ├── AccessDenied
    │   ├── NotFound
    │   │   ├── ScopeNotFound
    │   │   ├── StreamNotFound
    │   │   └── EpochTruncated        controller_service
    │   ├── AlreadyExists
    │   ├── StreamSealed
    │   ├── StreamNotSealed
    │   ├── ScopeNotEmpty
    │   ├── SegmentError
    │   │   ├── SegmentNotFound
    │   │   │   └── SegmentMerged
    │   │   ├── SegmentExists
    │   │   ├── SegmentSealed
    │   │   ├── SegmentNotSealed
    │   │   ├── SegmentTruncated
    │   │   ├── BadOffset
    │   │   ├── BadAttributeUpdate
    │   │   │   └── BadEventNumber
    │   │   └── TableError
    │   │       ├── NotATable
    │   │       ├── KeyNotFound
    │   │       ├── BadKeyVersion
    │   │       └── TableNotEmpty
    │   ├── PreconditionFailed        controller_service
    │   │   └── ConfigMismatch
    │   ├── QuotaExceeded
    │   ├── Superseded
    │   ├── TransactionFailed         pravega_streams
    │   ├── ControllerRefused
    │   ├── ReaderOffline
    │   ├── EventsTruncated
    │   ├── BatchRefused              pravega_spark
    │   ├── BatchUnresolved
    │   ├── CheckpointBehindSink
    │   ├── ReplayDiffers
    │   ├── WireDecodeError           pravega_common.wire
    │   │   └── TooManyItems
    │   ├── WireProtocolError
    │   ├── WrongOffset               segment_service
    │   └── OffsetOutOfRange
    ├── FailedError                   certainly not done; the same call may succeed later
    │   ├── ContainerNotHosted
    │   ├── ContainerOffline
    │   ├── Throttled
    │   ├── TokenExpired
    │   ├── Unavailable
    │   │   ├── StreamBeingDeleted    controller_service
    │   │   ├── MemberBeingDeleted
    │   │   └── ReplyError            segment_service
    │   ├── VersionConflict
    │   ├── FailpointError            pravega_common.runtime
    │   ├── IllegalState              controller_service
    │   ├── OperationNotAllowed
    │   ├── NoHost
    │   ├── WaitTimedOut
    │   ├── CommitFailed
    │   ├── AbortFailed
    │   ├── ScaleFailed
    │   ├── StepFailed
    │   ├── AppendRefused             segment_service
    │   ├── EpochTooLow
    │   └── MergeUnfinished
    ├── Fenced                        not done, and never will be: another owner took over, this one stops for good
    ├── UnknownOutcome                done or not, nobody can tell here: resolve it, never guess
    │   ├── ConnectionLost            segment_service
    │   └── MajorityLost
    └── DataCorruption                bytes that fail their checksum or their own rules; never retried, never replayed
        ├── SegmentDamaged
        ├── PlogMissing               segment_service
        └── ServerLost

A name says what is wrong with which thing, in one form: ``<Thing>NotFound``, ``<Thing>Exists``, ``<Thing>Sealed``,
``<Thing>NotSealed``, ``<Thing>NotEmpty``. Messages name the value, the limit and the remedy.
``tests/unit/pravega_common/test_errors.py`` holds the drawing against the classes.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Self


class Outcome(enum.Enum):
    """The effect of a failed call."""

    REJECTED = "rejected"
    FAILED = "failed"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class PravegaError(Exception):
    """The root of all errors that a caller may handle."""

    outcome: ClassVar[Outcome] = Outcome.FAILED

    @property
    def retryable(self) -> bool:
        """Whether the same call, repeated as it is, may succeed (an unknown outcome must be resolved first)."""
        return self.outcome is Outcome.FAILED

    def may_be_repeated(self, *, idempotent: bool) -> bool:
        """Whether the call may be repeated: after a failure, and with an unknown outcome if it is idempotent."""
        return self.retryable or (idempotent and self.outcome is Outcome.UNKNOWN)


class RejectedError(PravegaError):
    """A call that was not done, and that will not succeed as it is: bad input, or a state that refuses it."""

    outcome = Outcome.REJECTED


class FailedError(PravegaError):
    """A call that was certainly not done and may succeed later."""

    outcome = Outcome.FAILED


class Fenced(PravegaError):
    """A call of an owner that another one with a higher epoch replaced: it stops for good."""

    outcome = Outcome.FENCED


class UnknownOutcome(PravegaError):
    """A call that was done or not, which nobody can tell here."""

    outcome = Outcome.UNKNOWN


class DataCorruption(PravegaError):
    """Bytes that fail their checksum or their own rules."""

    outcome = Outcome.REJECTED


class SegmentDamaged(DataCorruption):
    """Bytes of one segment in Tier 2 that are damaged, missing or fewer than they must be. Only that segment is
    concerned: it is quarantined, and the others of its container go on."""

    def __init__(self, segment_id: int, message: str) -> None:
        self.segment_id = segment_id
        super().__init__(message)


class InvalidArgument(RejectedError):
    """A value outside its documented range; the message names the value and the limit."""


class UnsupportedOperation(RejectedError):
    """The operation exists, but not for this kind of segment or in this version."""


class ConfigurationError(RejectedError):
    """A setting that cannot work; the message names the setting, its value and the remedy."""


class AuthenticationFailed(RejectedError):
    """Missing or wrong credentials, or a token that a store does not take though its claims permit the request."""


class AccessDenied(RejectedError):
    """A call that its caller may not make; names the user, the resource and the permission, or the sink whose secret
    is missing."""


class NotFound(RejectedError):
    """A scope, stream, transaction, table or reader group that the controller does not know."""


class ScopeNotFound(NotFound):
    """The scope does not exist."""

    @classmethod
    def of(cls, scope: str) -> Self:
        """The error that names the scope."""
        return cls(f"scope {scope!r} does not exist")


class StreamNotFound(NotFound):
    """The stream does not exist."""

    @classmethod
    def of(cls, scope: str, stream: str) -> Self:
        """The error that names the stream."""
        return cls(f"stream {scope}/{stream} does not exist")


class AlreadyExists(RejectedError):
    """The name is taken: what is to be created exists."""


class StreamSealed(RejectedError):
    """The stream takes no further events."""


class StreamNotSealed(RejectedError):
    """The stream must be sealed before it can be deleted."""


class ScopeNotEmpty(RejectedError):
    """The scope must be empty before it can be deleted."""


class SegmentError(RejectedError):
    """An error about one segment."""

    def __init__(self, segment: str, message: str = "", *, offset: int = -1) -> None:
        self.segment = segment
        self.offset = offset
        super().__init__(message or f"{type(self).__name__}: {segment}")


class SegmentNotFound(SegmentError):
    """The segment does not exist (never created, deleted, or merged away)."""


class SegmentExists(SegmentError):
    """The segment exists already."""


class SegmentSealed(SegmentError):
    """The segment takes no further bytes."""


class SegmentNotSealed(SegmentError):
    """The operation needs a sealed segment."""


class SegmentMerged(SegmentNotFound):
    """The segment was merged into another one.

    ``target_length`` answers a merge that is made again: the target's length just after the first time.
    """

    def __init__(self, segment: str, target_length: int | None = None) -> None:
        self.target_length = target_length
        super().__init__(segment)


class SegmentTruncated(SegmentError):
    """The offset lies below the start of the segment; ``start_offset`` is the first one available."""

    def __init__(self, segment: str, start_offset: int, offset: int) -> None:
        self.start_offset = start_offset
        super().__init__(segment, f"{segment}: offset {offset} is below the start offset {start_offset}", offset=offset)


class BadOffset(SegmentError):
    """A conditional operation named another offset than the current one (``expected_offset`` is the current)."""

    def __init__(self, segment: str, expected_offset: int, offset: int) -> None:
        self.expected_offset = expected_offset
        super().__init__(
            segment, f"{segment}: offset {offset} given, current offset is {expected_offset}", offset=offset
        )


class BadAttributeUpdate(SegmentError):
    """A conditional attribute update whose condition does not hold; nothing of its operation was applied."""

    def __init__(self, segment: str, attribute_id: bytes, current: int, message: str = "") -> None:
        self.attribute_id = attribute_id
        self.current = current
        super().__init__(segment, message or f"{segment}: attribute {attribute_id.hex()} is {current}")


class BadEventNumber(BadAttributeUpdate):
    """An append whose writer's last event number is not the one expected: another connection wrote."""


class TableError(SegmentError):
    """An error about one table segment."""


class NotATable(TableError):
    """A table operation on a segment that is not a table, or the reverse."""


class KeyNotFound(TableError):
    """A conditional update of a key that is absent."""


class BadKeyVersion(TableError):
    """A conditional update of a key whose version differs."""


class TableNotEmpty(TableError):
    """Deleting a table that must be empty."""


class ContainerNotHosted(FailedError):
    """This store does not own the segment's container; ask the controller again."""

    def __init__(self, container_id: int, message: str = "") -> None:
        self.container_id = container_id
        super().__init__(message or f"container {container_id} is not hosted here")


class ContainerOffline(FailedError):
    """The container is starting, stopping or failed; nothing of the call was done."""


class Throttled(FailedError):
    """A named limit was reached; nothing of the call was done."""


class TokenExpired(FailedError):
    """A token that has ended; nothing of the call was done, and with a new token it may succeed."""


class Unavailable(FailedError):
    """A component that the call needs does not answer; nothing of the call was done."""


class VersionConflict(FailedError):
    """A compare-and-set lost; read again and retry."""
