"""Packs requests about segments of one store into batches, and unpacks their replies (docs/wire-protocol.md 3.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pravega_common.errors import PravegaError, UnknownOutcome
from pravega_common.wire import commands as c
from pravega_common.wire.codec import decode_frame, encode
from pravega_common.wire.errors import WireDecodeError
from pravega_common.wire.versions import batch_bytes_max, batch_requests_max
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.requests import MakeCommand, with_token

R = TypeVar("R", bound=c.Command)


@dataclass(frozen=True, slots=True)
class SegmentCall(Generic[R]):
    """A request about one segment that may travel in a batch."""

    segment: str
    make: Callable[[int], c.Command]
    """Builds the command once its request id is known."""
    expect: type[R]
    """What a good reply is."""


class SegmentBatch(Generic[R]):
    """Requests that travel together, up to the limits of a store. Their ids are their places."""

    def __init__(self) -> None:
        self.calls: list[SegmentCall[R]] = []
        self._makes: list[MakeCommand] = []
        """What builds each request, with its token."""
        self._frames: list[bytes] = []
        self._bytes = 0

    def add(self, call: SegmentCall[R], token: str = "") -> bool:
        """Take a request along, with a token unless that is empty; False if the batch is full, and another one must
        take it. An empty batch takes any."""
        make = with_token(call.make, token)
        frame = encode(make(len(self.calls)))
        is_full = len(self.calls) >= batch_requests_max or self._bytes + len(frame) > batch_bytes_max
        if self.calls and is_full:
            return False
        self.calls.append(call)
        self._makes.append(make)
        self._frames.append(frame)
        self._bytes += len(frame)
        return True

    def command(self, request_id: int) -> c.Command:
        return c.RequestBatch(request_id, tuple(self._frames))

    def outcomes(self, reply: c.Command, close: Callable[[str], None]) -> list[R | PravegaError]:
        """The good reply or the error of each request, in their order.

        Raises the error that the reply to the whole batch stands for; ``UnknownOutcome`` if it cannot be understood:
        ``close`` is called with the reason, as nothing on that connection can be trusted.
        """
        first = self.calls[0].segment
        answered = expected_reply(reply, first, (c.RequestBatchAnswered,), close)
        try:
            replies = [decode_frame(frame) for frame in answered.replies]
        except WireDecodeError as error:
            close(str(error))
            raise UnknownOutcome(f"{first} and others: {error}") from error
        if [getattr(one, "request_id", None) for one in replies] != list(range(len(self.calls))):
            close("a batch was answered in another order, or not wholly")
            raise UnknownOutcome(f"{first} and others: {len(replies)} replies to {len(self.calls)} requests")
        requests = zip(self.calls, self._makes, replies, strict=True)
        return [_outcome(call, make, one, close) for call, make, one in requests]


def _outcome(
    call: SegmentCall[R], make: MakeCommand, reply: c.Command, close: Callable[[str], None]
) -> R | PravegaError:
    try:
        return expected_reply(reply, call.segment, (call.expect,), close, make)
    except PravegaError as error:
        return error
