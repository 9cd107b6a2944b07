"""Reads an internal stream with the readers of ``pravega_streams``, inside the controller's own process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from controller_service.event_processors.event_source import slice_wait_s
from controller_service.event_processors.stream_writer import InternalStreamWriter
from pravega_common.errors import PravegaError
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import SYSTEM_SCOPE
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.event_reader import EventReader
from pravega_streams.readers.group_state import HEAD, GroupConfiguration, refresh_time_default_ms
from pravega_streams.readers.reader_group import ReaderGroup
from pravega_streams.readers.slices import SegmentSlice

Truncate = Callable[[str, SegmentOffsets], Awaitable[None]]
"""Truncates a stream of the system at a cut."""


def reader_of(member_id: str) -> str:
    """The name of an instance's reader. A reader's name has no underscore; the random end of the id keeps it unique."""
    return member_id.replace("_", ".")


class WireEventSource:
    """An ``EventSource``. ``prepare`` makes the stream unless it is there, and returns once it can be read."""

    def __init__(
        self,
        cluster: ReaderCluster,
        stream: str,
        group: str,
        reader_id: str,
        prepare: Callable[[], Awaitable[None]],
        truncate: Truncate,
        refresh_time_ms: int = refresh_time_default_ms,
    ) -> None:
        self.reader_id = reader_id
        self._cluster = cluster
        self._stream = stream
        self._configuration = GroupConfiguration({(SYSTEM_SCOPE, stream): HEAD}, {}, refresh_time_ms)
        self._prepare = prepare
        self._truncate = truncate
        self._group = ReaderGroup(cluster, SYSTEM_SCOPE, group)
        # Truncations look at the group while the other one may change it.
        self._observed = ReaderGroup(cluster, SYSTEM_SCOPE, group)
        self._writer = InternalStreamWriter(cluster.metadata, cluster.resolver, SYSTEM_SCOPE, stream)
        self._reader: EventReader | None = None
        self._truncated_at: SegmentOffsets | None = None

    async def join(self) -> None:
        await self._close_reader()
        await self._prepare()
        await self._group.create(self._configuration)
        # An earlier run of this instance that did not get to leave.
        await self._group.reader_offline(self.reader_id)
        self._reader = await self._group.create_reader(self.reader_id)

    async def next_slice(self, timeout_s: float = slice_wait_s) -> SegmentSlice | None:
        return await self._joined().get_segment_slice(timeout_s)

    def release(self, piece: SegmentSlice, offset: int) -> None:
        try:
            self._joined().release_segment_at(piece, offset)
        except ReaderOffline:
            return

    async def write(self, routing_key: str, event: bytes) -> None:
        await self._writer.write(routing_key, event)

    def other_readers(self) -> list[str]:
        return [reader for reader in self._joined().readers_seen if reader != self.reader_id]

    async def take_offline(self, reader_id: str) -> None:
        await self._group.reader_offline(reader_id)
        # Its segments are free now: this one need not wait for its next look at the group.
        await self._joined().refresh()

    async def truncate(self) -> None:
        if (await self._observed.readers_online())[:1] != [self.reader_id]:
            return
        cut = (await self._observed.get_stream_cuts())[SYSTEM_SCOPE, self._stream].offsets
        if self._truncated_at is None:
            self._truncated_at = await self._cluster.metadata.head_cut(SYSTEM_SCOPE, self._stream)
        if cut != self._truncated_at:
            await self._truncate(self._stream, cut)
            self._truncated_at = cut

    async def leave(self) -> None:
        self._writer.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.reader_offline()

    async def _close_reader(self) -> None:
        """Give a reader up that may be dead already; its name is taken out of the group by who joins."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        try:
            await reader.reader_offline()
        except PravegaError:
            return

    def _joined(self) -> EventReader:
        if self._reader is None:
            raise ReaderOffline(f"reader {self.reader_id} has not joined its group")
        return self._reader
