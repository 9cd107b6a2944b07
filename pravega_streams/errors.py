"""Defines the errors that only the client raises. ``pravega_common.errors`` draws the whole tree."""

from __future__ import annotations

from pravega_common.errors import RejectedError


class TransactionFailed(RejectedError):
    """The transaction is not open any more: it was aborted, it timed out, or it was decided another way."""


class ControllerRefused(RejectedError):
    """The controller answered FAILURE to a request; the message names the request, and the reason if it is known."""


class ReaderOffline(RejectedError):
    """The reader is not in its group: it was taken offline, another one of its name came, or the group was reset."""


class EventsTruncated(RejectedError):
    """Events of a segment were truncated before they were read. A reader of a group goes on behind them.

    ``offset`` is the position before the error, ``next_offset`` the one behind; None if the whole segment is gone.
    """

    def __init__(self, segment: str, offset: int, next_offset: int | None) -> None:
        self.segment = segment
        self.offset = offset
        self.next_offset = next_offset
        there = "and nothing of the segment is left" if next_offset is None else f"up to offset {next_offset}"
        super().__init__(f"{segment}: events from offset {offset} on were truncated before they were read, {there}")
