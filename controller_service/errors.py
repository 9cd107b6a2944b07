"""Defines the errors of the controller's own subjects; their outcomes are those of ``pravega_common.errors``."""

from __future__ import annotations

from pravega_common.errors import FailedError, InvalidArgument, NotFound, RejectedError, Unavailable


class IllegalState(FailedError):
    """The stream is in a state in which this cannot be answered now, such as one that is still being created."""


class OperationNotAllowed(FailedError):
    """A state transition that the state machine of docs/controller-api.md 3.1 refuses at this moment."""


class PreconditionFailed(RejectedError):
    """The request does not fit what the stream looks like, and would not fit later either."""


class QuotaExceeded(RejectedError):
    """The quota of a scope does not admit what is to be made; names the value, the limit, the scope and the remedy."""


class NoHost(FailedError):
    """No segment store owns the container at this moment."""


class StreamBeingDeleted(Unavailable):
    """An earlier stream of the name is being deleted, and the new one can be made when that has ended."""


class MemberBeingDeleted(Unavailable):
    """An earlier reader group or key-value table of the name is being deleted, and the new one can be made then."""


class WaitTimedOut(FailedError):
    """The work was accepted and continues, but was not finished within the time a caller waits."""


class EpochTruncated(NotFound):
    """An epoch, or a replaced segment, that lies before the head of its stream and has no records any more."""


class CutTruncated(InvalidArgument):
    """A stream cut that lies before the head of its stream, in epochs that have no records any more."""
