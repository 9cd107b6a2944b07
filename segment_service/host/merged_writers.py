"""Lets go of the writers of a segment that was merged: nobody appends to it again.

A client that keeps its connection, as Spark's executors do, sets a writer up for each segment of each transaction, and
no command of the protocol ends one.
"""

from __future__ import annotations

from typing import Protocol

from pravega_common.names import parent_segment_name


class WriterHolder(Protocol):
    """The part of a connection that holds writers."""

    def segment_merged(self, segment: str, writer_id: bytes) -> None:
        """Let go of a writer that is set up for a segment that was merged."""
        ...


class MergedWriters:
    """The writers of segments that are going to be merged, of all connections of a server."""

    def __init__(self) -> None:
        self._by_segment: dict[str, dict[tuple[WriterHolder, bytes], None]] = {}
        """In the order in which they were set up; one may have very many, which are forgotten one by one."""

    def __len__(self) -> int:
        return len(self._by_segment)

    def set_up(self, segment: str, holder: WriterHolder, writer_id: bytes) -> None:
        """Note a writer, if its segment is one of a transaction, or a transient one."""
        if parent_segment_name(segment) != segment:
            self._by_segment.setdefault(segment, {})[holder, writer_id] = None

    def forget(self, segment: str, holder: WriterHolder, writer_id: bytes) -> None:
        """Drop a writer that its connection holds no longer."""
        writers = self._by_segment.get(segment)
        if writers is not None:
            writers.pop((holder, writer_id), None)
            if not writers:
                del self._by_segment[segment]

    def merged(self, segment: str) -> None:
        """The segment was merged."""
        for holder, writer_id in self._by_segment.pop(segment, ()):
            holder.segment_merged(segment, writer_id)
