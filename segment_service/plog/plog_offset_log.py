"""Reads and appends at offsets of a log stream: finds a frame in its plog, and goes on from plog to plog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption, Fenced, Unavailable
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.contracts.offset_log import FrameAt, OffsetOutOfRange, PlogRange, WrongOffset
from segment_service.plog.log_stream import LogStream
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import StoredEntry

probes_max: Final = 64
"""Entries looked at to find a frame in a plog: every second one halves what is left."""
renames_max: Final = 10
"""Times that a read goes on after a copy was fenced, though the log still has its owner."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The acknowledged frames of one plog, all that were ever in it: numbers, and bytes from 0 to ``length``."""

    number: int
    plog_id: PlogId
    start: int
    end: int
    length: int
    is_sealed: bool


class PlogOffsetLog:
    """``OffsetLog`` of a log stream on persistence groups."""

    def __init__(self, name: str, stream: LogStream, manager: MetadataManager, client: PersistenceClient) -> None:
        self._name = name
        self._stream = stream
        self._manager = manager
        self._client = client
        self._first: tuple[LogAddress, int] | None = None
        """The truncation point that was looked up last, and the offset of the frame there."""

    @property
    def next_offset(self) -> int:
        return self._stream.next_sequence

    @property
    def end_offset(self) -> int:
        return self._stream.acked_end[0]

    def append_at(self, offset: int, frame: Sequence[Buffer]) -> asyncio.Future[LogAddress]:
        if offset == self.next_offset:
            return self._stream.append(frame)
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        future.set_exception(WrongOffset(offset, self.next_offset))
        return future

    async def read(self, offset: int, bytes_max: int) -> AsyncIterator[FrameAt]:
        start, end = await self._start_offset(), self.end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        position, left, renames = offset, bytes_max, 0
        while position < end:
            span = await self._span_of(position)
            try:
                async for frame in self._read_span(span, position):
                    yield frame
                    position, left = position + 1, left - len(frame.payload)
                    if position == end or left <= 0:
                        return
            except (Fenced, DataCorruption) as error:
                renames += 1
                await self._explain(error, position, renames)

    async def _read_span(self, span: _Span, position: int) -> AsyncIterator[FrameAt]:
        """The frames of a plog from ``position`` on."""
        start = await self._find(span, position)
        group = self._client.group_of(span.plog_id)
        async for stored in group.read_sealed(span.plog_id, self._manager.epoch, start, span.length):
            where = f"plog {span.number}, offset {stored.start}"
            entry = stored.decode(where)
            if entry.header.sequence != position:
                raise DataCorruption(f"{where}: frame {entry.header.sequence} where {position} must be")
            yield FrameAt(position, entry.payload)
            position += 1

    async def plogs(self) -> list[PlogRange]:
        start = await self._start_offset()
        return [
            PlogRange(span.number, max(span.start, start), max(span.end, start), span.is_sealed)
            for span in self._spans()
        ]

    async def truncate_before(self, offset: int) -> None:
        start, end = await self._start_offset(), self.end_offset
        if not start <= offset < end:
            raise OffsetOutOfRange(offset, start, end)
        span = await self._span_of(offset)
        await self._stream.truncate(LogAddress(span.number, await self._find(span, offset)))

    def _spans(self) -> list[_Span]:
        plogs = self._manager.state.streams[self._name].plogs
        end, last = self._stream.acked_end
        spans = []
        for record, following in zip(plogs, (*plogs[1:], None), strict=True):
            if following is not None:
                behind, length = following.first_sequence, record.sealed or 0
            elif record.number == last.plog_number:
                behind, length = end, last.offset
            else:
                behind, length = record.first_sequence, 0  # it was just recorded, and nothing in it is acknowledged
            sealed = following is not None
            spans.append(_Span(record.number, record.plog_id, record.first_sequence, behind, length, sealed))
        return spans

    async def _span_of(self, offset: int) -> _Span:
        for span in self._spans():
            if span.start <= offset < span.end:
                return span
        raise OffsetOutOfRange(offset, await self._start_offset(), self.end_offset)

    async def _start_offset(self) -> int:
        """The offset of the first frame that counts."""
        spans = self._spans()
        point = self._manager.state.streams[self._name].truncated_at
        if point is None or point.offset == 0:
            return spans[0].start
        if self._first is None or self._first[0] != point:
            span = next(span for span in spans if span.number == point.plog_number)
            self._first = point, (await self._entry_over(span, point.offset)).decode("the first frame").header.sequence
        return self._first[1]

    async def _find(self, span: _Span, offset: int) -> int:
        """The byte at which a frame begins in its plog. Frames are mostly alike, so the place is guessed; every second
        guess is the middle, so that the number of looks is bounded in any case."""
        first, low, behind, high = span.start, 0, span.end, span.length
        for probe in range(probes_max):
            check(first <= offset < behind, "a frame is not in its plog", plog=span.number, offset=offset)
            if offset == first:
                return low
            share = (offset - first) / (behind - first) if probe % 2 == 0 else 0.5
            stored = await self._entry_over(span, low + int((high - low) * share))
            number = stored.decode(f"plog {span.number}, offset {stored.start}").header.sequence
            if number == offset:
                return stored.start
            if number < offset:
                first, low = number + 1, stored.end
            else:
                behind, high = number, stored.start
        raise DataCorruption(f"plog {span.number}: frame {offset} was not found in {probes_max} looks")

    async def _entry_over(self, span: _Span, byte: int) -> StoredEntry:
        """The entry that holds a byte of the plog."""
        group = self._client.group_of(span.plog_id)
        return await group.entry_over(span.plog_id, self._manager.epoch, byte, span.length)

    async def _explain(self, error: Fenced | DataCorruption, position: int, renames: int) -> None:
        """Return if the read may go on: a copy was fenced, and the log still has its owner."""
        start = await self._start_offset()
        if position < start:
            raise OffsetOutOfRange(position, start, self.end_offset) from error
        if isinstance(error, DataCorruption):
            await self._manager.explain_loss(error)
        await self._manager.check_owner()
        if renames >= renames_max:
            raise Unavailable(f"the plog of frame {position} was renamed {renames} times while it was read") from error
