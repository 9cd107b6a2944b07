"""Defines the errors that only the client raises. ``pravega_common.errors`` draws the whole tree."""

from __future__ import annotations

from pravega_common.errors import RejectedError


class TransactionFailed(RejectedError):
    """The transaction is not open any more: it was aborted, it timed out, or it was decided another way."""


class ControllerRefused(RejectedError):
    """The controller answered FAILURE to a request; the message names the request, and the reason if it is known."""
