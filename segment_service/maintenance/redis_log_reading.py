"""Reads logs on plog servers, each entry from whichever copy has it whole, without the CPO and without a fence."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.errors import ConfigurationError, DataCorruption, Unavailable
from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.maintenance.cpo_rebuild import longest_copy, newest_metadata
from segment_service.maintenance.log_reading import LogChanged, begins_at
from segment_service.maintenance.plog_census import CopyFacts, ServerCensus, copies_of, take_census
from segment_service.plog.chain import Chain, check_kind
from segment_service.plog.entry import PlogEntryKind, decode_entry
from segment_service.plog.metadata_records import PlogRecord, StreamRecord
from segment_service.plog.plog import FenceToken, PlogId, PlogKeys
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import ConnectionLost, RedisConnection
from segment_service.plog.redis_log import stream_name

entries_at_once: Final = 4
"""Entries, each of at most 2 MiB, that are read by one call."""


@dataclass(slots=True)
class _Copy:
    """One server's copy of the plog that is read, with the error that ended its reading."""

    server: ServerCensus
    facts: CopyFacts
    error: DataCorruption | None = None


class RedisLogSource:
    """``LogSource`` over the servers of persistence groups."""

    def __init__(self, groups: Sequence[PersistenceGroup], containers: int, settings: PlogSettings) -> None:
        self._groups = groups
        self._containers = containers
        self._settings = settings

    async def census(self) -> list[ServerCensus]:
        """As ``take_census`` over these groups."""
        return await take_census(self._groups, self._containers, self._settings)

    async def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        census = await self.census()
        self._need_majorities(census)
        copies = list(copies_of(census, container_id))
        newest = self._newest_metadata(container_id, copies, census)
        if newest is None:
            if any(copy.has_entries and copy.header.stream == stream_name for copy in copies):
                raise LogChanged(  # its owner, or the next one, may have replaced what was listed
                    f"container {container_id} has data plogs, but no metadata plog: its log was lost, or is in a "
                    "group that the settings do not name",
                    is_loss=True,
                )
            return
        metadata = longest_copy(newest, copies).metadata
        record = StreamRecord() if metadata is None else metadata.streams.get(stream_name, StreamRecord())
        self._need_groups(record)
        async with contextlib.AsyncExitStack() as stack:
            async for entry in _Reading(census, container_id, self._settings, stack).read(record):
                yield entry

    @staticmethod
    def _newest_metadata(
        container_id: int, copies: Sequence[CopyFacts], census: Sequence[ServerCensus]
    ) -> PlogId | None:
        try:
            return newest_metadata(container_id, copies, census)
        except Unavailable as error:
            if any(server.error for server in census):
                raise
            empty = ", ".join(server.address for server in census if not server.counts)
            raise LogChanged(
                f"container {container_id}: no majority has its log, and all servers answer; these lost their data: "
                f"{empty}",
                is_loss=True,
            ) from error

    def _need_groups(self, record: StreamRecord) -> None:
        """``ConfigurationError`` for a plog in a group that is not read. One that gets no new plogs has its old ones
        until they are in Tier 2: they are not lost."""
        names = {group.name for group in self._groups}
        for plog_id in (plog.plog_id for plog in record.plogs if plog.plog_id.group not in names):
            raise ConfigurationError(
                f"plog {plog_id} of the log is in group {plog_id.group}, which these settings do not name: give this "
                "command settings with every group that holds plogs in tier1.groups"
            )

    def _need_majorities(self, census: Sequence[ServerCensus]) -> None:
        for group in self._groups:
            away = [
                f"{server.address}: {server.error}" for server in census if server.group == group.name and server.error
            ]
            if 2 * len(away) >= len(group.servers):
                raise Unavailable(
                    f"persistence group {group.name}: {len(away)} of {len(group.servers)} servers do not answer: "
                    f"{'; '.join(away)}"
                )


class _Reading:
    """One reading of one log."""

    def __init__(
        self,
        census: Sequence[ServerCensus],
        container_id: int,
        settings: PlogSettings,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._census = census
        self._container_id = container_id
        self._settings = settings
        self._stack = stack
        self._connections: dict[str, RedisConnection] = {}

    async def read(self, record: StreamRecord) -> AsyncIterator[LogEntry]:
        chain, expected = Chain(), record.truncated_at
        for plog in record.plogs:
            start = expected.offset if expected is not None and expected.plog_number == plog.number else 0
            if start == 0:
                chain.next_sequence, chain.last = plog.first_sequence, plog.previous
            async for entry in self._plog(plog, start, chain):
                if expected is not None:
                    begins_at(entry, expected)
                    expected = None
                yield entry

    async def _plog(self, plog: PlogRecord, start: int, chain: Chain) -> AsyncIterator[LogEntry]:
        """The entries that any copy has behind those before. Each copy is a prefix of what the owner sent."""
        copies = [
            _Copy(server, found)
            for server in self._census
            if (found := server.plogs.get(self._container_id, {}).get(plog.plog_id)) is not None
        ]
        offset, before = start, -1
        while copies and before < offset and (plog.sealed is None or offset < plog.sealed):
            before = offset
            for copy in copies:
                async for entry, end in self._copy(copy, plog, offset, chain):
                    offset = end
                    yield entry
        if plog.sealed is None or offset < plog.sealed:
            await self._refuse_changed(plog, copies)
            error = next((copy.error for copy in copies if copy.error is not None), None)
            if error is not None:
                raise error
        if plog.sealed is not None and offset < plog.sealed:
            raise DataCorruption(
                f"plog {plog.plog_id} was sealed at {plog.sealed}, and no server has more than its first {offset} bytes"
            )

    async def _copy(
        self, copy: _Copy, plog: PlogRecord, offset: int, chain: Chain
    ) -> AsyncIterator[tuple[LogEntry, int]]:
        """The entries of one copy from ``offset`` on that follow one another, with their ends; none behind the end at
        which the plog was sealed: what a single server had there was sent again, to the next plog."""
        copy.error = None
        stream = PlogKeys(self._settings.prefix, plog.plog_id).stream(copy.facts.token)
        while plog.sealed is None or offset < plog.sealed:
            page = await self._call(copy.server, "XRANGE", stream, f"({offset}-1", "+", "COUNT", entries_at_once)
            if not page:
                return
            for entry_id, fields in page:
                where = f"plog {plog.plog_id} on {copy.server.address}, offset {fields[1].decode()}"
                if int(fields[1]) != offset or offset == plog.sealed:
                    return
                try:
                    entry = decode_entry(fields[3], where)
                    check_kind(entry, PlogEntryKind.DATA, where)
                    chain.accept(entry, LogAddress(plog.number, offset), where)
                except DataCorruption as error:
                    copy.error = error
                    return
                address, offset = LogAddress(plog.number, offset), int(entry_id.partition(b"-")[0])
                yield LogEntry(address, entry.payload), offset

    async def _refuse_changed(self, plog: PlogRecord, copies: list[_Copy]) -> None:
        """``LogChanged`` if what was read under these names may have ended because its owner renamed or freed it."""
        if not copies:
            raise LogChanged(f"plog {plog.plog_id}, which the log consists of, is on no server", is_loss=True)
        for copy in copies:
            meta = PlogKeys(self._settings.prefix, plog.plog_id).meta
            epoch, fences = await self._call(copy.server, "HMGET", meta, "epoch", "fences")
            if epoch is None or FenceToken(int(epoch), int(fences)) != copy.facts.token:
                raise LogChanged(f"plog {plog.plog_id} was freed or fenced while it was read")

    async def _call(self, server: ServerCensus, *command: str | int) -> Any:
        connection = self._connections.get(server.address)
        try:
            if connection is None:
                connection = await RedisConnection.open(
                    server.address,
                    connect_timeout_s=self._settings.connect_timeout_s,
                    reply_timeout_s=self._settings.reply_timeout_s,
                    access=self._settings.access,
                )
                self._connections[server.address] = connection
                self._stack.callback(connection.abort)
            return await connection.call(*command)
        except ConnectionLost as error:
            raise Unavailable(f"{server.address} was lost while the log was read: {error}") from error
