"""Errors that a user of streams sees, beside those of ``pravega_common.errors``."""

from __future__ import annotations

from pravega_common.errors import RejectedError


class NotFound(RejectedError):
    """A scope, stream, transaction or segment that the controller does not know."""


class ScopeNotFound(NotFound):
    """The scope does not exist."""


class StreamNotFound(NotFound):
    """The stream does not exist."""


class AlreadyExists(RejectedError):
    """The name is taken by something else."""


class StreamSealed(RejectedError):
    """The stream takes no further events."""


class StreamNotSealed(RejectedError):
    """Only a sealed stream can be deleted."""


class ScopeNotEmpty(RejectedError):
    """Only an empty scope can be deleted."""


class TransactionFailed(RejectedError):
    """The transaction is not open any more: it was aborted, it timed out, or it was decided another way."""


class ControllerRefused(RejectedError):
    """The controller answered FAILURE to a request; the message names the request, and the reason if it is known."""
