"""Defines the contract of a log at offsets: appends at an expected offset, reads of any part, its list of plogs.

An offset is the number of a frame in the log, from 0, without gaps, over all owners, and never used twice (Kafka's
offset). It stays the same when the log goes on in another plog, as byte positions would not. The containers' own log is
``DurableDataLog``, which needs none of this; an ``OffsetLog`` is another view on the same frames, for its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pravega_common.errors import RejectedError
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress


class WrongOffset(RejectedError):
    """An append was expected at another offset than ``current``, where the next one goes. Nothing was done."""

    def __init__(self, offset: int, current: int) -> None:
        self.offset = offset
        self.current = current
        super().__init__(f"append at offset {offset}, but the next frame is number {current}")


class OffsetOutOfRange(RejectedError):
    """No acknowledged frame has this offset: it was truncated, or does not exist yet."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        self.offset = offset
        self.start = start
        self.end = end
        super().__init__(f"no frame at offset {offset}: the log has those from {start} to before {end}")


@dataclass(frozen=True, slots=True)
class FrameAt:
    """A frame that was read back."""

    offset: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class PlogRange:
    """The frames of one plog: from ``start`` to before ``end``. Those of neighbours touch."""

    number: int
    """See ``LogAddress.plog_number``."""
    start: int
    end: int
    """Behind its last acknowledged frame."""
    is_sealed: bool


class OffsetLog(Protocol):
    """The frames of a log that its owner has initialized, by their offsets."""

    @property
    def next_offset(self) -> int:
        """The offset of the next append, behind those that are not acknowledged yet."""
        ...

    @property
    def end_offset(self) -> int:
        """Behind the last acknowledged frame: what may be read lies before it."""
        ...

    def append_at(self, offset: int, frame: Sequence[Buffer]) -> asyncio.Future[LogAddress]:
        """As ``DurableDataLog.append``, if ``offset`` is ``next_offset`` at the moment of the call; else the future
        fails with ``WrongOffset``, which says what it is, and the log goes on. Several may be on their way."""
        ...

    def read(self, offset: int, bytes_max: int) -> AsyncIterator[FrameAt]:
        """Frames from ``offset`` on, over as many plogs as it takes, until ``bytes_max`` payload bytes are reached (at
        least one frame) or the end as it was at the begin of the read.

        Each frame comes from any copy that is intact. ``OffsetOutOfRange`` for an offset that is truncated, also in the
        midst of a read, or beyond the end (none at the end itself); ``DataCorruption`` if all copies are damaged;
        ``Fenced`` if a later owner was seen. Any number may run beside each other and beside appends.
        """
        ...

    async def plogs(self) -> list[PlogRange]:
        """The plogs in order, from the first frame that counts to ``end_offset``; at least one, the last one open."""
        ...

    async def truncate_before(self, offset: int) -> None:
        """Forget the frames before ``offset``, which must be that of an acknowledged frame; else ``OffsetOutOfRange``.
        See ``DurableDataLog.truncate``."""
        ...
