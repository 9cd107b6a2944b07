"""Implements a persistence group of one server: every operation is that server's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from pravega_common.errors import DataCorruption, Fenced
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.plog.append_quorum import OnAppended
from segment_service.plog.chain import offset_max
from segment_service.plog.group_contract import FencedPlog, OpenPlog
from segment_service.plog.left_copies import LeftCopies
from segment_service.plog.plog import PlogHeader, PlogId, PlogStatus
from segment_service.plog.plog_client import PlogClient, PlogMissing, ServerPlog, StoredEntry
from segment_service.plog.sealed_reader import copied_entry_over, read_copy

Send = Callable[[ServerPlog, int, Sequence[Buffer], int, OnAppended], None]


class SingleServerGroup:
    """``PersistenceGroupClient`` of one server."""

    def __init__(self, name: str, server: PlogClient) -> None:
        self.name = name
        self._server = server
        self._left = LeftCopies(server)

    def reset(self) -> None:
        self._server.reset()

    async def move_server(self, index: int, address: str) -> None:
        check(index == 0, "a group of one has one server", group=self.name, index=index)
        await self._server.move(address)
        self._left.forget()

    async def open_for_appends(self) -> None:
        await self._server.open_for_appends()

    async def create(self, header: PlogHeader) -> OpenPlog:
        return OpenPlog(header.plog_id, {0: await self._server.create(header)})

    def append(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        self._in_turn(self._server.append, plog, start, frame, size, done)

    def append_urgent(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        self._in_turn(self._server.append_urgent, plog, start, frame, size, done)

    def _in_turn(
        self, send: Send, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended
    ) -> None:
        turns = plog.turns
        if start != turns.end:
            turns.hold(start, size, partial(send, plog.copies[0], start, frame, size, done), done)
            return
        turns.end += size
        send(plog.copies[0], start, frame, size, done)
        if turns.held_bytes:
            turns.release()

    async def append_small(self, plog: OpenPlog, start: int, frame: bytes) -> None:
        await self._server.append_small(plog.copies[0], start, frame)

    async def has_room(self) -> bool:
        return await self._server.has_room()

    def is_current(self, plog: OpenPlog) -> bool:
        return True

    async def may_rejoin(self, plog: OpenPlog) -> bool:
        return False

    async def status(self, plog_id: PlogId) -> PlogStatus | None:
        return await self._server.status(plog_id)

    async def check_not_fenced(self, plog: OpenPlog) -> None:
        status = await self._server.status(plog.plog_id)
        if status is None:
            raise PlogMissing(f"plog {plog.plog_id} is gone: the server lost data")
        if status.token.epoch > plog.copies[0].token.epoch:
            raise Fenced(f"plog {plog.plog_id}: epoch {status.token.epoch} took over")

    async def fence(self, plog_id: PlogId, epoch: int, known: OpenPlog | None = None) -> FencedPlog:
        return _FencedPlog(self._server, plog_id, epoch, await self._server.fence(plog_id, epoch))

    async def seal(self, plog: OpenPlog, epoch: int, offset: int) -> int:
        return await self._server.seal(plog.plog_id, epoch, offset)

    async def delete(self, plog_id: PlogId, container_id: int, epoch: int) -> bool:
        try:
            is_deleted = await self._server.delete(plog_id, container_id, epoch)
        except BaseException:
            self._left.note(plog_id, container_id, epoch)
            raise
        await self._left.delete()
        return is_deleted

    async def delete_left(self, index: int) -> None:
        await self._left.delete()

    def damaged(self, index: int) -> set[PlogId]:
        return set()

    async def list_plogs(self, container_id: int) -> list[PlogId]:
        return await self._server.list_plogs(container_id)

    async def header(self, plog_id: PlogId) -> PlogHeader:
        return await self._server.header(plog_id)

    async def has_entries(self, plog_id: PlogId) -> bool:
        return await self._server.has_entries(plog_id)

    async def has_entry_at(self, plog_id: PlogId, offset: int) -> bool:
        return await self._server.has_entry_at(plog_id, offset)

    async def entry_over(self, plog_id: PlogId, epoch: int, byte: int, end: int) -> StoredEntry:
        return await copied_entry_over(self._server, plog_id, epoch, byte, end)

    def read_sealed(self, plog_id: PlogId, epoch: int, start: int, end: int) -> AsyncIterator[StoredEntry]:
        return read_copy(self._server, plog_id, epoch, start, end)


class _FencedPlog:
    def __init__(self, server: PlogClient, plog_id: PlogId, epoch: int, status: PlogStatus) -> None:
        self.sealed = status.sealed
        self._server = server
        self._plog_id = plog_id
        self._epoch = epoch
        self._token = status.token

    def read(self, start: int, end: int) -> AsyncIterator[StoredEntry]:
        limit = offset_max if self.sealed is None else self.sealed
        return self._server.read(self._plog_id, self._token, start, min(end, limit))

    def explained(self, error: DataCorruption) -> DataCorruption:
        return error

    async def settle(self, end: int, *, is_acked: bool = False) -> None:
        """Does nothing: there is no other copy."""

    async def seal(self, offset: int) -> int:
        return await self._server.seal(self._plog_id, self._epoch, offset)
