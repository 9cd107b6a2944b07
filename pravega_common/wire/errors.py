"""Defines the errors of bytes that arrive from a peer."""

from __future__ import annotations

from pravega_common.errors import RejectedError


class WireDecodeError(RejectedError):
    """A frame that does not follow its layout; ``command`` is the name of the command, or "frame" for a bad header."""

    def __init__(self, command: str, reason: str) -> None:
        self.command = command
        self.reason = reason
        super().__init__(f"{command}: {reason}")


class TooManyItems(WireDecodeError):
    """A list with more items than the receiver takes in one request; the frame itself is well-formed.

    ``request_id`` and ``segment`` are those of the request, as far as they stand before the list.
    """

    def __init__(self, command: str, count: int, items_max: int) -> None:
        self.count = count
        self.request_id = -1
        self.segment = ""
        super().__init__(command, f"{count} items in one request; the limit is {items_max}: send several requests")


class WireProtocolError(RejectedError):
    """A well-formed command that is not allowed at this point of the connection; the peer is to be disconnected."""

    def __init__(self, command: str, reason: str) -> None:
        self.command = command
        self.reason = reason
        super().__init__(f"{command}: {reason}")
