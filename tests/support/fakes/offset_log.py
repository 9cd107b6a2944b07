"""Shows the log in memory by offsets: the fake of ``OffsetLog``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from pravega_common.errors import DataCorruption
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.contracts.offset_log import FrameAt, OffsetOutOfRange, PlogRange, WrongOffset
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore


class InMemoryOffsetLog:
    """``OffsetLog`` of an initialized ``InMemoryDataLog``."""

    def __init__(self, log: InMemoryDataLog, store: InMemoryLogStore) -> None:
        self._log = log
        self._store = store

    @property
    def next_offset(self) -> int:
        return self.end_offset + self._log.pending_frames

    @property
    def end_offset(self) -> int:
        stored = self._store.container(self._log.container_id)
        return stored.removed + len(stored.entries)

    @property
    def _start(self) -> int:
        return self.end_offset - len(self._store.entries(self._log.container_id))

    def append_at(self, offset: int, frame: Sequence[Buffer]) -> asyncio.Future[LogAddress]:
        if offset == self.next_offset:
            return self._log.append(frame)
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        future.set_exception(WrongOffset(offset, self.next_offset))
        return future

    async def read(self, offset: int, bytes_max: int) -> AsyncIterator[FrameAt]:
        end = self.end_offset
        stored = self._store.container(self._log.container_id)
        while True:
            await self._log.check_owner()
            if not self._start <= offset <= end:
                raise OffsetOutOfRange(offset, self._start, self.end_offset)
            if offset == end or bytes_max <= 0:
                return
            entry = stored.entries[offset - stored.removed]
            if entry.address in stored.damaged:
                raise DataCorruption(f"frame {offset} fails its checksum")
            yield FrameAt(offset, entry.payload)
            offset, bytes_max = offset + 1, bytes_max - len(entry.payload)

    async def plogs(self) -> list[PlogRange]:
        stored = self._store.container(self._log.container_id)
        position, ranges = self._start, []
        entries = self._store.entries(self._log.container_id)
        for number, frames in groupby(entries, key=lambda entry: entry.address.plog_number):
            count = len(list(frames))
            ranges.append(PlogRange(number, position, position + count, True))
            position += count
        last = stored.next_address.plog_number
        if ranges and ranges[-1].number == last:
            ranges[-1] = PlogRange(last, ranges[-1].start, position, False)
        else:
            ranges.append(PlogRange(last, position, position, False))
        return ranges

    async def truncate_before(self, offset: int) -> None:
        if not self._start <= offset < self.end_offset:
            raise OffsetOutOfRange(offset, self._start, self.end_offset)
        stored = self._store.container(self._log.container_id)
        await self._log.truncate(stored.entries[offset - stored.removed].address)
