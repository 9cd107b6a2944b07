"""Bounds the bytes that all block writers of a process hold together, whatever the number of their segments."""

from __future__ import annotations

from typing import Final, Protocol

from pravega_common.errors import SegmentError

block_bytes_max: Final = 1020 * 1024
"""Pieces gather up to this size before they leave; a single larger piece leaves as it is. With what goes around it, it
fits into a receive buffer and into a frame of the log of a store, of 1 MiB each: neither cuts it."""
held_bytes_max: Final = 64 * 1024 * 1024
"""Bytes that writers may hold together: gathered, and sent but not acknowledged. Eight segments in full flight."""
kept_share: Final = 2
"""Over the limit, writers are drained to this part of it, so that the work is not done again at the next write."""
gathered_share: Final = 4
"""Blocks that gather are sent until they hold this part of the limit: the largest first, since a block has a cost."""


class HoldingWriter(Protocol):
    """A writer of one segment; ``BlockWriter`` says more."""

    @property
    def gathered_bytes(self) -> int: ...

    @property
    def has_failed(self) -> bool: ...

    def start_flush(self) -> None: ...

    def flush(self) -> None: ...


class WriteBudget:
    """Counts what writers hold, and has the largest blocks sent and the oldest waited for where it is too much."""

    def __init__(self, limit_bytes: int = held_bytes_max) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._by_writer: dict[HoldingWriter, int] = {}
        """Those that hold bytes, in the order in which they began to."""

    def hold(self, writer: HoldingWriter, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._by_writer[writer] = self._by_writer.get(writer, 0) + size_bytes

    def release(self, writer: HoldingWriter, size_bytes: int) -> None:
        if writer not in self._by_writer:
            return  # It is closed, and an answer came late.
        left = self._by_writer.pop(writer) - size_bytes
        self.held_bytes -= size_bytes
        if left > 0:
            # It goes to the back of the order: others wait for longer now.
            self._by_writer[writer] = left

    def forget(self, writer: HoldingWriter) -> None:
        self.held_bytes -= self._by_writer.pop(writer, 0)

    def keep(self) -> None:
        """Returns when no more is held than may be, but for the bytes of writers that failed.

        Such a writer says so itself when it is used next. ``Unavailable`` when no store answers in time.
        """
        if self.held_bytes > self._limit_bytes:
            self._send_gathered()
            self._wait_for_oldest()

    def _send_gathered(self) -> None:
        """One look at all writers for many writes: what is sent is at least half of what may gather."""
        able = sorted(
            (writer for writer in self._by_writer if not writer.has_failed and writer.gathered_bytes),
            key=lambda writer: writer.gathered_bytes,
            reverse=True,
        )
        gathered_bytes = sum(writer.gathered_bytes for writer in able)
        for writer in able:
            if gathered_bytes <= self._limit_bytes // gathered_share:
                return
            gathered_bytes -= writer.gathered_bytes
            try:
                writer.start_flush()
            except SegmentError:
                continue  # It keeps the error, and what it holds, for its own caller.

    def _wait_for_oldest(self) -> None:
        for writer in list(self._by_writer):
            if self.held_bytes <= self._limit_bytes // kept_share:
                return
            if not writer.has_failed:
                try:
                    writer.flush()
                except SegmentError:
                    continue  # As above.
