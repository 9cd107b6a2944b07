"""The error tree of the whole project.

Every failed call has one of three outcomes, and code that retries reads the outcome and never lists types::

    PravegaError
    ├── RejectedError            not done, and the same call will not succeed: bad input, or a state that refuses it
    │   ├── InvalidArgument, UnsupportedOperation, ConfigurationError, AuthenticationFailed
    │   ├── NoSuchSegment, SegmentExists, SegmentSealed, SegmentNotSealed, SegmentTruncated, SegmentMerged
    │   ├── BadOffset, BadAttributeUpdate, BadEventNumber
    │   └── NoSuchKey, BadKeyVersion, TableNotEmpty, NotATable
    ├── FailedError              certainly not done; the same call may succeed later
    │   ├── ContainerNotHosted, ContainerOffline, Throttled, Unavailable
    │   └── Fenced               another owner took over; this one must stop
    ├── UnknownOutcome           done or not, nobody can tell here: resolve it, never guess
    └── DataCorruption           bytes that fail their checksum or their own rules; never retried, never replayed
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Outcome(enum.Enum):
    """What a failed call did."""

    REJECTED = "rejected"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PravegaError(Exception):
    """Root of all errors that a caller may handle."""

    outcome: ClassVar[Outcome] = Outcome.FAILED

    @property
    def retryable(self) -> bool:
        """Whether the same call, made again as it is, may succeed (an unknown outcome must be resolved first)."""
        return self.outcome is Outcome.FAILED


class RejectedError(PravegaError):
    outcome = Outcome.REJECTED


class FailedError(PravegaError):
    outcome = Outcome.FAILED


class UnknownOutcome(PravegaError):
    outcome = Outcome.UNKNOWN


class DataCorruption(PravegaError):
    outcome = Outcome.REJECTED


class InvalidArgument(RejectedError):
    """A value outside its documented range; the message names the value and the limit."""


class UnsupportedOperation(RejectedError):
    """The operation exists, but not for this kind of segment or in this version."""


class ConfigurationError(RejectedError):
    """A setting that cannot work; the message names the setting, its value and the remedy."""


class AuthenticationFailed(RejectedError):
    """A missing, expired or insufficient token."""


class SegmentError(RejectedError):
    """An error about one segment."""

    def __init__(self, segment: str, message: str = "", *, offset: int = -1) -> None:
        self.segment = segment
        self.offset = offset
        super().__init__(message or f"{type(self).__name__}: {segment}")


class NoSuchSegment(SegmentError):
    """The segment does not exist (never created, deleted, or merged away)."""


class SegmentExists(SegmentError):
    """The segment exists already."""


class SegmentSealed(SegmentError):
    """The segment takes no further bytes."""


class SegmentNotSealed(SegmentError):
    """The operation needs a sealed segment."""


class SegmentMerged(NoSuchSegment):
    """The segment was merged into another one."""


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


class NoSuchKey(TableError):
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


class Unavailable(FailedError):
    """A component that the call needs does not answer; nothing of the call was done."""


class Fenced(FailedError):
    """Another owner with a higher epoch took over. Whoever sees this stops writing for good."""


class VersionConflict(FailedError):
    """A compare-and-set lost; read again and retry."""
