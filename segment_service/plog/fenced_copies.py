"""Recovers a plog from the copies of a majority of servers: reads what any of them has, completes them, seals them.

The owner of a plog sent one byte sequence to every server, so at one offset every intact entry is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from pravega_common.errors import DataCorruption, PravegaError, Unavailable, UnknownOutcome
from pravega_common.invariants import check
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.plog.append_quorum import behind_bytes_max
from segment_service.plog.chain import offset_max
from segment_service.plog.group_servers import GroupServers
from segment_service.plog.plog import FenceToken, PlogId
from segment_service.plog.plog_client import PlogClient, StoredEntry
from segment_service.plog.server_connections import ServerLost

COPY_COMPLETED: Final = register("plog.group.copy_completed")
REPLICATED: Final = register("plog.group.replicated")
COPY_SEALED: Final = register("plog.group.copy_sealed")


@dataclass(slots=True, eq=False)
class PlogCopy:
    """The copy of a fenced plog on one server."""

    index: int
    server: PlogClient
    same_run: bool
    """Whether the server ran through since it made the copy."""
    is_there: bool = True
    end: int = 0
    """Bytes that it has without a gap, as far as it was read."""
    behind: list[int] = field(default_factory=list)
    """Ends of the entries behind a gap."""
    is_damaged: bool = False

    def has(self, end: int) -> bool:
        """Whether it has every byte below ``end``."""
        return self.is_there and self.end >= end


class _Head:
    """The next entry of one copy."""

    def __init__(self, copy: PlogCopy, entries: AsyncIterator[StoredEntry]) -> None:
        self.copy = copy
        self.entry: StoredEntry | None = None
        self._entries = entries

    async def advance(self) -> None:
        try:
            self.entry = await anext(self._entries, None)
        except ServerLost as error:
            raise Unavailable(str(error)) from error
        except DataCorruption as error:
            self.entry = None
            self.damaged(error)

    def is_intact(self, where: str) -> bool:
        try:
            check(self.entry is not None, "no entry to look at")
            if self.entry is not None:
                self.entry.decode(where)
        except DataCorruption as error:
            self.damaged(error)
            return False
        return True

    def damaged(self, error: DataCorruption) -> None:
        self.copy.is_damaged = True
        structlog.get_logger().warning("a copy is damaged", address=self.copy.server.address, error=str(error))


class FencedCopies:
    """``FencedPlog`` of a group of several servers.

    ``copies``: of the servers that were fenced, and of those that have none; ``are_all_known``: every other server is
    known to be lost.
    """

    def __init__(
        self,
        servers: GroupServers,
        plog_id: PlogId,
        epoch: int,
        token: FenceToken,
        copies: Sequence[PlogCopy],
        *,
        are_all_known: bool,
    ) -> None:
        self.sealed = None  # a seal counts once the metadata log has it, and then nobody recovers the plog
        self._servers = servers
        self._plog_id = plog_id
        self._epoch = epoch
        self._token = token
        self._copies = copies
        self._are_all_known = are_all_known

    async def read(self, start: int, end: int) -> AsyncIterator[StoredEntry]:
        """As ``FencedPlog.read``; afterwards the end of each copy is known."""
        heads = [_Head(copy, self._entries(copy, copy.end)) for copy in self._copies if copy.is_there]
        async for entry, holders in self._merged(heads):
            for copy in holders:
                if entry.start == copy.end:
                    copy.end = entry.end
                else:
                    copy.behind.append(entry.end)
            if start < entry.end <= end:
                yield entry

    def explained(self, error: DataCorruption) -> PravegaError:
        if self._are_all_known:
            return error
        return Unavailable(f"plog {self._plog_id}: a server that does not answer may have what is missing: {error}")

    async def settle(self, end: int, *, is_acked: bool = False) -> None:
        through = sum(copy.is_there and copy.same_run for copy in self._copies)
        if not (is_acked or self._are_all_known or through >= self._servers.majority):
            raise Unavailable(
                f"plog {self._plog_id}: {through} of {len(self._servers)} servers ran through since it was made, "
                f"and not all are reached: what the others have may be missing"
            )
        whole = 0
        for copy in sorted(self._copies, key=_least_to_lose):
            is_needed = whole < self._servers.majority
            if not copy.has(end) and (is_needed or (copy.is_there and end - copy.end <= behind_bytes_max)):
                await self._complete(copy, end, is_needed=is_needed)
            whole += copy.has(end)
        check(whole >= self._servers.majority, "a plog was not completed", plog_id=str(self._plog_id))
        failpoint(REPLICATED)

    async def seal(self, offset: int) -> int:
        whole = [copy.index for copy in self._copies if copy.has(offset)]
        answers = await self._servers.ask(
            lambda index, server: seal_copy(server, self._plog_id, self._epoch, offset), among=whole
        )
        if not self._servers.is_majority(answers):
            raise answers.failure(f"sealing plog {self._plog_id}")
        return min(answers.values.values())

    def _entries(self, copy: PlogCopy, start: int) -> AsyncIterator[StoredEntry]:
        return copy.server.read(self._plog_id, self._token, start, offset_max)

    async def _merged(self, heads: Sequence[_Head]) -> AsyncIterator[tuple[StoredEntry, list[PlogCopy]]]:
        """Every entry once, in order, with the copies that have it intact."""
        for head in heads:
            await head.advance()
        while ahead := [head.entry.start for head in heads if head.entry is not None]:
            start = min(ahead)
            found: StoredEntry | None = None
            damaged: StoredEntry | None = None
            holders = []
            for head in heads:
                entry = head.entry
                if entry is None or entry.start != start:
                    continue
                if head.is_intact(f"plog {self._plog_id} on {head.copy.server.address}, offset {start}"):
                    found = found or entry
                    check(entry.end == found.end, "two entries at one offset", plog_id=str(self._plog_id), offset=start)
                    holders.append(head.copy)
                else:
                    damaged = entry
                await head.advance()
            if found is not None:
                yield found, holders
            elif damaged is not None:
                yield damaged, []  # the reader raises the error

    async def _complete(self, copy: PlogCopy, end: int, *, is_needed: bool) -> None:
        """Copy to a server what it lacks below ``end``; one that is not needed may fail."""
        try:
            if copy.is_damaged or copy.behind:
                await self._check_others(copy, end)
            await self._prepare(copy)
            async for entry, holders in self._merged(self._heads_of_others(copy, copy.end)):
                if not holders or entry.start != copy.end or copy.end >= end:
                    break
                await copy.server.append_copy(self._plog_id, self._token, entry)
                copy.end = entry.end
            if copy.end < end:
                text = f"plog {self._plog_id}: no copy has the entry at {copy.end}, below {end}"
                raise self.explained(DataCorruption(text))
        except (Unavailable, UnknownOutcome, ServerLost) as error:
            if is_needed:
                raise Unavailable(f"completing the copy on {copy.server.address}: {error}") from error
            structlog.get_logger().warning("a copy was not completed", address=copy.server.address, error=str(error))
        failpoint(COPY_COMPLETED)

    async def _check_others(self, copy: PlogCopy, end: int) -> None:
        """Raises unless the other copies have every byte below ``end``: what is intact in this one is given up next."""
        position = 0 if copy.is_damaged else copy.end
        async for entry, holders in self._merged(self._heads_of_others(copy, position)):
            if not holders or entry.start != position or position >= end:
                break
            position = entry.end
        if position < end:
            text = f"the copy on {copy.server.address} is damaged or has a gap, and no other has"
            text = f"plog {self._plog_id}: {text} the entry at {position}, below {end}; nothing was removed"
            raise self.explained(DataCorruption(text))

    def _heads_of_others(self, copy: PlogCopy, start: int) -> list[_Head]:
        others = (other for other in self._copies if other.is_there and other is not copy)
        return [_Head(other, self._entries(other, start)) for other in others]

    async def _prepare(self, copy: PlogCopy) -> None:
        """Let the next entry of a copy go to its ``end``."""
        if copy.is_damaged or not copy.is_there:
            source = next(other for other in self._copies if other.is_there and other is not copy)
            await copy.server.remake(await source.server.header(self._plog_id), self._token)
            copy.is_there, copy.is_damaged, copy.end = True, False, 0
        elif copy.behind:
            await copy.server.trim(self._plog_id, self._token, copy.end, copy.behind)
        copy.behind = []


def _least_to_lose(copy: PlogCopy) -> tuple[bool, bool, bool, int]:
    """The order in which copies are completed: what is intact in a damaged one, or behind a gap, another may lack."""
    return copy.is_damaged, not copy.is_there, bool(copy.behind), -copy.end


async def seal_copy(server: PlogClient, plog_id: PlogId, epoch: int, offset: int) -> int:
    """Seal one copy at ``offset``; ``Unavailable`` if it is shorter."""
    sealed = await server.seal(plog_id, epoch, offset, whole=True)
    if sealed != offset:
        raise Unavailable(f"plog {plog_id} on {server.address} has {sealed} of {offset} bytes")
    failpoint(COPY_SEALED)
    return sealed
