"""Implements a persistence group of three servers: every operation is done once a majority did it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from pravega_common.errors import FailedError, Fenced, PravegaError, Unavailable
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.plog.append_quorum import AppendQuorum, MajorityLost, OnAppended
from segment_service.plog.chain import offset_max
from segment_service.plog.fenced_copies import FencedCopies, PlogCopy, seal_copy
from segment_service.plog.group_contract import FencedPlog, OpenPlog
from segment_service.plog.group_servers import Answers, GroupServers
from segment_service.plog.left_copies import LeftCopies
from segment_service.plog.plog import PlogHeader, PlogId, PlogStatus
from segment_service.plog.plog_client import (
    AppendRefused,
    PlogClient,
    PlogMissing,
    ServerPlog,
    StoredEntry,
    next_token,
)
from segment_service.plog.redis_connection import ConnectionLost
from segment_service.plog.sealed_reader import entry_over, read_sealed

MAJORITY_FENCED = register("plog.group.majority_fenced")

Send = Callable[[PlogClient, ServerPlog, int, Sequence[Buffer], int, OnAppended], None]


class QuorumGroup:
    """``PersistenceGroupClient`` of several servers."""

    def __init__(self, name: str, clients: Sequence[PlogClient]) -> None:
        self.name = name
        self._servers = GroupServers(clients)
        self._left = [LeftCopies(client) for client in clients]
        self._log = structlog.get_logger(group=name)

    def reset(self) -> None:
        self._servers.reset()

    async def move_server(self, index: int, address: str) -> None:
        await self._servers.move(index, address)
        self._left[index].forget()

    async def open_for_appends(self) -> None:
        answers = await self._servers.ask(lambda _, server: server.open_for_appends())
        self._require_majority(answers, "connecting")

    async def create(self, header: PlogHeader) -> OpenPlog:
        async def make(_: int, server: PlogClient) -> ServerPlog:
            await server.open_for_appends()
            return await server.create(header)

        answers = await self._servers.ask(make)
        if not self._servers.is_majority(answers):
            await self._delete(header.plog_id, header.container_id, header.epoch, among=answers.values)
            raise answers.failure(f"creating plog {header.plog_id} in group {self.name}")
        quorum = AppendQuorum(len(self._servers), answers.values, lambda error: isinstance(error, FailedError))
        return OpenPlog(header.plog_id, answers.values, quorum)

    # --- appends

    def append(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        self._in_turn(PlogClient.append, plog, start, frame, size, done)

    def append_urgent(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        self._in_turn(PlogClient.append_urgent, plog, start, frame, size, done)

    def _in_turn(
        self, send: Send, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended
    ) -> None:
        turns = plog.turns
        if start != turns.end:
            turns.hold(start, size, partial(self._append, send, plog, start, frame, size, done), done)
            return
        turns.end += size
        self._append(send, plog, start, frame, size, done)
        if turns.held_bytes:
            turns.release()

    def _append(
        self, send: Send, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended
    ) -> None:
        quorum = plog.required_quorum
        if quorum.is_lost:
            done(Unavailable(f"fewer servers than a majority take appends of plog {plog.plog_id}"))
            return
        now_s = asyncio.get_running_loop().time()
        number = quorum.sent(start + size, now_s, done)
        for index in quorum.members:
            server = self._servers.clients[index]
            copy = plog.copies[index]
            if self._goes_on(plog, index, server, copy):
                send(server, copy, start, frame, size, partial(quorum.answered, index, number))
            else:
                quorum.answered(index, number, ConnectionLost(f"connected to Redis at {server.address} again"))
        for index in quorum.late(now_s):
            self._log.warning("a plog server is too slow", address=self._servers.clients[index].address)
            self._servers.clients[index].connections.reset_data()

    def _goes_on(self, plog: OpenPlog, index: int, server: PlogClient, copy: ServerPlog) -> bool:
        """Whether all appends of the plog went over one connection, to the process that made the copy: only then is
        there no gap before the next one."""
        connection = server.connections.data_number
        first = plog.data_numbers.get(index)
        if first is None and server.connections.run_id == copy.run_id:
            first = plog.data_numbers[index] = connection
        return first == connection

    async def append_small(self, plog: OpenPlog, start: int, frame: bytes) -> None:
        quorum = plog.required_quorum
        members = quorum.members
        if quorum.is_lost:
            raise MajorityLost(f"fewer servers than a majority take entries of plog {plog.plog_id}")

        async def append(index: int, server: PlogClient) -> None:
            await server.connections.control()
            if server.connections.run_id != plog.copies[index].run_id:
                raise ConnectionLost(f"Redis at {server.address} was restarted since it made plog {plog.plog_id}")
            await server.append_small(plog.copies[index], start, frame)

        answers = await self._servers.ask(append, among=members)
        errors = {index: error for index, error in answers.errors.items() if index in members}
        if not answers.values and len(errors) == len(members):
            if all(isinstance(error, Unavailable) for error in errors.values()):
                raise answers.failure(f"appending to plog {plog.plog_id}")
            if all(isinstance(error, FailedError) for error in errors.values()):
                raise AppendRefused(f"plog {plog.plog_id} takes no entry: {next(iter(errors.values()))}")
        for index in members:
            if index not in answers.values:
                quorum.drop(index, errors.get(index) or ConnectionLost("no answer in time"))
        if not self._servers.is_majority(answers):
            raise MajorityLost(f"plog {plog.plog_id}: {answers.failure('an entry')}", errors.values())

    async def has_room(self) -> bool:
        least_without = len(self._servers) - self._servers.majority + 1

        def is_known(answers: Answers[bool]) -> bool:
            having = sum(answers.values.values())
            return having >= self._servers.majority or len(answers.values) - having >= least_without

        answers = await self._servers.ask(lambda _, server: server.has_room(), is_known)
        if not is_known(answers):
            raise answers.failure("looking at the memory of servers")
        return sum(answers.values.values()) >= self._servers.majority

    def is_current(self, plog: OpenPlog) -> bool:
        servers = self._servers.clients
        return all(servers[index].connections.run_id == copy.run_id for index, copy in plog.copies.items())

    async def may_rejoin(self, plog: OpenPlog) -> bool:
        out = [index for index in range(len(self._servers)) if index not in plog.required_quorum.members]
        answers = await self._servers.ask(lambda _, server: server.open_for_appends(), lambda _: True, out)
        return bool(answers.values)

    # --- whole plogs

    async def status(self, plog_id: PlogId) -> PlogStatus | None:
        answers = await self._statuses(plog_id)
        found = list(answers.values.values())
        if not found and answers.are_all_known:
            return None
        if len(found) < self._servers.majority:
            raise answers.failure(f"the status of plog {plog_id}")
        sealed = [status.sealed for status in found if status.sealed is not None]
        return PlogStatus(max(status.token for status in found), max(sealed, default=None))

    async def _statuses(self, plog_id: PlogId) -> Answers[PlogStatus]:
        async def look(_: int, server: PlogClient) -> PlogStatus:
            status = await server.status(plog_id)
            if status is None:
                raise PlogMissing(f"plog {plog_id} is not on Redis at {server.address}: the server lost data")
            return status

        return await self._servers.ask(look)

    async def check_not_fenced(self, plog: OpenPlog) -> None:
        async def look(index: int, server: PlogClient) -> None:
            status = await server.status(plog.plog_id)
            if status is None:
                raise PlogMissing(f"plog {plog.plog_id} is not on Redis at {server.address}: the server lost data")
            if status.token.epoch > plog.copies[index].token.epoch:
                raise Fenced(f"plog {plog.plog_id}: epoch {status.token.epoch} took over")
            if status.token != plog.copies[index].token or not status.same_run:
                raise Unavailable(f"Redis at {server.address} was restarted since it made plog {plog.plog_id}")

        # A server that made its copy too late is not asked: it was counted as fenced while it had none.
        answers = await self._servers.ask(look, among=plog.copies)
        if not self._servers.is_majority(answers):
            raise self._nowhere(plog.plog_id, answers)

    async def fence(self, plog_id: PlogId, epoch: int, known: OpenPlog | None = None) -> FencedPlog:
        shown = await self._statuses(plog_id)
        if not shown.values:
            raise self._nowhere(plog_id, shown)
        token = next_token(plog_id, max(status.token for status in shown.values.values()), epoch)

        def is_fenced(answers: Answers[PlogStatus]) -> bool:
            return bool(answers.values) and len(answers.values) + len(answers.missing) >= self._servers.majority

        def is_enough(answers: Answers[PlogStatus]) -> bool:
            ran_through = sum(status.same_run for status in answers.values.values())
            proves_end = known is not None or ran_through >= self._servers.majority or answers.are_all_known
            return is_fenced(answers) and proves_end

        answers = await self._servers.ask(lambda _, server: server.fence_as(plog_id, token), is_enough)
        if any(isinstance(error, Fenced) for error in answers.errors.values()) or not is_fenced(answers):
            raise self._nowhere(plog_id, answers)
        failpoint(MAJORITY_FENCED)
        copies = [
            PlogCopy(index, self._servers.clients[index], status.same_run) for index, status in answers.values.items()
        ]
        for copy in copies:
            if copy.same_run and known is not None:
                copy.end = known.required_quorum.prefix(copy.index)
        copies += [PlogCopy(index, self._servers.clients[index], False, is_there=False) for index in answers.missing]
        return FencedCopies(self._servers, plog_id, epoch, token, copies, are_all_known=answers.are_all_known)

    async def seal(self, plog: OpenPlog, epoch: int, offset: int) -> int:
        whole = [index for index in plog.copies if plog.required_quorum.prefix(index) >= offset]
        answers = await self._servers.ask(lambda _, server: seal_copy(server, plog.plog_id, epoch, offset), among=whole)
        if self._servers.is_majority(answers):
            return offset
        failure = answers.failure(f"sealing plog {plog.plog_id}")
        if isinstance(failure, Fenced):
            raise failure
        self._log.warning("completing copies to seal a plog", plog_id=str(plog.plog_id), error=str(failure))
        fenced = await self.fence(plog.plog_id, epoch, plog)
        async for _ in fenced.read(offset, offset_max):
            pass
        await fenced.settle(offset, is_acked=True)
        return await fenced.seal(offset)

    async def delete(self, plog_id: PlogId, container_id: int, epoch: int) -> bool:
        answers = await self._delete(plog_id, container_id, epoch)
        self._require_majority(answers, f"deleting plog {plog_id}")
        return all(answers.values.values())

    async def _delete(
        self, plog_id: PlogId, container_id: int, epoch: int, among: Iterable[int] | None = None
    ) -> Answers[bool]:
        """Delete the copies, and remember on which servers that is not known to be done."""
        done: Collection[int] = ()
        try:
            answers = await self._servers.ask(
                lambda _, server: server.delete(plog_id, container_id, epoch), among=among
            )
            done = answers.values
        finally:
            for index, left in enumerate(self._left):
                if index not in done:
                    left.note(plog_id, container_id, epoch)
        return answers

    async def delete_left(self, index: int) -> None:
        await self._left[index].delete()

    def damaged(self, index: int) -> set[PlogId]:
        return self._servers.damaged[index]

    async def list_plogs(self, container_id: int) -> list[PlogId]:
        answers = await self._servers.ask(lambda _, server: server.list_plogs(container_id))
        self._require_majority(answers, f"listing the plogs of container {container_id}")
        return sorted(set().union(*answers.values.values()))

    async def header(self, plog_id: PlogId) -> PlogHeader:
        answers = await self._servers.ask(lambda _, server: server.header(plog_id), lambda found: bool(found.values))
        if not answers.values:
            raise self._nowhere(plog_id, answers)
        return next(iter(answers.values.values()))

    async def has_entries(self, plog_id: PlogId) -> bool:
        return await self._any(plog_id, lambda _, server: server.has_entries(plog_id))

    async def has_entry_at(self, plog_id: PlogId, offset: int) -> bool:
        return await self._any(plog_id, lambda _, server: server.has_entry_at(plog_id, offset))

    async def _any(self, plog_id: PlogId, call: Callable[[int, PlogClient], Awaitable[bool]]) -> bool:
        """Whether a server says yes; no, if a majority says so and every other one does that answers."""

        def is_known(answers: Answers[bool]) -> bool:
            return any(answers.values.values()) or len(answers.values) >= self._servers.majority

        answers = await self._servers.ask(call, is_known)
        if not is_known(answers):
            raise self._nowhere(plog_id, answers)
        return any(answers.values.values())

    async def entry_over(self, plog_id: PlogId, epoch: int, byte: int, end: int) -> StoredEntry:
        return await entry_over(self._servers, plog_id, epoch, byte, end)

    def read_sealed(self, plog_id: PlogId, epoch: int, start: int, end: int) -> AsyncIterator[StoredEntry]:
        return read_sealed(self._servers, plog_id, epoch, start, end)

    def _require_majority(self, answers: Answers[Any], what: str) -> None:
        if not self._servers.is_majority(answers):
            raise answers.failure(f"{what} in group {self.name}")

    def _nowhere(self, plog_id: PlogId, answers: Answers[Any]) -> PravegaError:
        """The error for a plog that too few servers have."""
        failure = answers.failure(f"plog {plog_id} in group {self.name}")
        if answers.missing and not answers.values and answers.are_all_known:
            return answers.errors[answers.missing[0]]
        return failure
