"""Keeps the frames of a log stream that are not acknowledged yet, in the order of their sequence numbers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pravega_common.errors import PravegaError, UnknownOutcome
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.appends import fail_append, frames_pending_max


@dataclass(slots=True)
class PendingFrame:
    """A frame that is queued, or was sent and is not acknowledged."""

    sequence: int
    parts: Sequence[Buffer]
    payload_bytes: int
    checksum: int
    future: asyncio.Future[LogAddress]
    address: LogAddress = LogAddress(0, 0)  # noqa: RUF009
    answered: bool = False
    refused: bool = False


class FrameWindow:
    """The frames that were sent, and behind them those that are queued."""

    def __init__(self, next_sequence: int) -> None:
        self.queue: deque[PendingFrame] = deque()
        self.sent: deque[PendingFrame] = deque()
        self.next_sequence = next_sequence

    def add(
        self, parts: Sequence[Buffer], payload_bytes: int, checksum: int, future: asyncio.Future[LogAddress]
    ) -> None:
        """Queue a frame under the next sequence number."""
        check(len(self.queue) + len(self.sent) < frames_pending_max, "too many frames in flight")
        self.queue.append(PendingFrame(self.next_sequence, parts, payload_bytes, checksum, future))
        self.next_sequence += 1

    @property
    def first_waiting(self) -> int:
        """The sequence number of the first frame that is not acknowledged, or of the next one."""
        return self.sent[0].sequence if self.sent else self.first_queued

    @property
    def first_queued(self) -> int:
        return self.queue[0].sequence if self.queue else self.next_sequence

    def send_again(self) -> None:
        """Put what was sent back in front of what is queued."""
        while self.sent:
            self.queue.appendleft(self.sent.pop())

    def fail(self, error: PravegaError, unknown: UnknownOutcome) -> None:
        """End every append. What was sent and neither answered nor refused is unknown, up to the first refusal; the
        rest was not done."""
        refused = False
        for frame in self.sent:
            refused = refused or frame.refused
            fail_append(frame.future, error if refused else unknown)
        for frame in self.queue:
            fail_append(frame.future, error)
        self.sent.clear()
        self.queue.clear()
