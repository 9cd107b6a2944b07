"""Defines the contract of an event source: one instance's part of an internal stream that all instances read."""

from __future__ import annotations

from typing import Final, Protocol

from pravega_streams.readers.slices import SegmentSlice

slice_wait_s: Final = 1.0
"""How long one call waits for a slice by default. Reads wait at the stores meanwhile, nothing polls."""


class EventSource(Protocol):
    """Reads a stream through a reader group in which every instance is one reader, and writes to it.

    Events of one routing key lie in one segment at a time, in the order in which they were written. A segment belongs
    to one reader at a time; a slice of it is out until it is released, and nothing more of the segment comes meanwhile.
    What was released is recorded every few seconds and at the end; what was not recorded comes again to the
    next reader of the segment: every event comes at least once, and in the order of writing.

    Not for several tasks at a time, but for ``release``, ``write`` and ``truncate``. Errors of every method but
    ``release``: ``Unavailable`` and ``UnknownOutcome``, after which it may be called again.
    """

    @property
    def reader_id(self) -> str: ...

    async def join(self) -> None:
        """Make the stream and its group unless they exist, and become a reader of it. May be called again, after
        which the slices that were out come again."""
        ...

    async def next_slice(self, timeout_s: float = slice_wait_s) -> SegmentSlice | None:
        """Some events of one segment, one at least; None if there were none in time.

        ``ReaderOffline`` after another instance took this reader out of the group: nothing comes before ``join``.
        ``EventsTruncated`` in place of events that are gone; the next call goes on behind them.
        """
        ...

    def release(self, piece: SegmentSlice, offset: int) -> None:
        """Give a slice back: the events before ``offset`` are handled, those from there on come again. Nothing happens
        if this reader is not in the group any more."""
        ...

    async def write(self, routing_key: str, event: bytes) -> None:
        """Append an event behind all others of its key. It is durable on return, twice perhaps after an error.

        ``InvalidArgument`` for an event above 8 MiB. Several may be written at the same time.
        """
        ...

    def other_readers(self) -> list[str]:
        """The other readers in the group, as of the last look at it, those included that died without leaving."""
        ...

    async def take_offline(self, reader_id: str) -> None:
        """Take a dead reader out of the group; its segments go to those who are left. May be called twice."""
        ...

    async def truncate(self) -> None:
        """Remove from the stream what the whole group has recorded as handled, if this reader's turn it is."""
        ...

    async def leave(self) -> None:
        """Record what was released and leave the group. May be called twice, and without ``join``."""
        ...
