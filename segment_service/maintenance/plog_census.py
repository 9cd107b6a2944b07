"""Reads what the plog servers say of themselves: identities, plogs, their headers and the metadata in them.

Changes nothing, and needs neither the CPO nor the identities on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pravega_common.errors import DataCorruption, Unavailable
from pravega_common.runtime.joined import all_ended
from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.chain import Chain, check_kind
from segment_service.plog.entry import PlogEntryKind, decode_entry
from segment_service.plog.metadata_manager import stream_name as metadata_stream
from segment_service.plog.metadata_records import FullRecord, apply, decode_record
from segment_service.plog.plog import FenceToken, PlogHeader, PlogId, PlogKeys, identity_key, index_key
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import ConnectionLost, RedisConnection

plogs_at_once_max: Final = 64
"""Plogs of one server that are asked about at the same time."""
looks_max: Final = 10
"""How often a plog is looked at that its owner fences, or frees, at the same time."""
entries_at_once: Final = 100
"""Metadata records read by one call."""


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """One server's copy of a plog."""

    header: PlogHeader
    token: FenceToken
    has_entries: bool
    metadata: FullRecord | None
    """The state at its end, of a metadata plog that begins with a full record."""

    @property
    def epoch(self) -> int:
        """The highest epoch that the copy shows."""
        return max(self.header.epoch, self.token.epoch)


@dataclass(slots=True)
class ServerCensus:
    """One server of a group: ``error`` if it did not answer, else its identity (``None`` if it has none) and, by
    container, its plogs."""

    group: str
    index: int
    address: str
    error: str = ""
    identity: str | None = None
    plogs: dict[int, dict[PlogId, CopyFacts]] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it answered and kept its data, as far as it can tell."""
        return not self.error and self.identity is not None


def copies_of(census: Iterable[ServerCensus], container_id: int | None = None) -> Iterator[CopyFacts]:
    """All copies of plogs, or those of one container."""
    for server in census:
        for container, plogs in server.plogs.items():
            if container_id in (None, container):
                yield from plogs.values()


async def take_census(
    groups: Sequence[PersistenceGroup], containers: int, settings: PlogSettings
) -> list[ServerCensus]:
    """Ask every server of the groups, side by side; one that does not answer is in the result with the error."""
    servers = [
        ServerCensus(group.name, index, address) for group in groups for index, address in enumerate(group.servers)
    ]
    await all_ended(_ask(server, containers, settings) for server in servers)
    return servers


async def _ask(server: ServerCensus, containers: int, settings: PlogSettings) -> None:
    try:
        connection = await RedisConnection.open(
            server.address,
            connect_timeout_s=settings.connect_timeout_s,
            reply_timeout_s=settings.reply_timeout_s,
            access=settings.access,
        )
        try:
            await _Reader(connection, settings.prefix).read(server, containers)
        finally:
            connection.abort()
    except (Unavailable, ConnectionLost) as error:
        server.error = str(error)


class _Reader:
    """Reads one server over one connection."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    async def read(self, server: ServerCensus, containers: int) -> None:
        identity = await self._connection.call("GET", identity_key(self._prefix))
        server.identity = None if identity is None else identity.decode()
        for container_id in range(containers):
            found = await self._connection.call("SMEMBERS", index_key(self._prefix, container_id))
            plog_ids = sorted(PlogId.parse(text.decode()) for text in found)
            plogs: dict[PlogId, CopyFacts] = {}
            for start in range(0, len(plog_ids), plogs_at_once_max):
                part = plog_ids[start : start + plogs_at_once_max]
                copies = await all_ended(self._copy(plog_id, container_id) for plog_id in part)
                plogs |= {plog_id: copy for plog_id, copy in zip(part, copies, strict=True) if copy is not None}
            server.plogs[container_id] = plogs

    async def _copy(self, plog_id: PlogId, container_id: int) -> CopyFacts | None:
        """``None`` if only its name is there. Under one token nothing is renamed or freed: what was read while that
        changed is read again."""
        keys = PlogKeys(self._prefix, plog_id)
        where = f"plog {plog_id} on {self._connection.address}"
        token = await self._token(keys)
        for _ in range(looks_max):
            if token is None:
                return None
            stream = keys.stream(token)
            head = await self._connection.call("XRANGE", stream, "-", "+", "COUNT", 2)
            before, token = token, await self._token(keys)
            if token != before:
                continue
            header = self._header(head, plog_id, container_id, where)
            if header.stream != metadata_stream or len(head) == 1:
                return CopyFacts(header, before, len(head) > 1, None)
            metadata = await self._metadata(stream, where)
            token = await self._token(keys)
            if token == before:
                return CopyFacts(header, before, has_entries=True, metadata=metadata)
        raise Unavailable(f"{where} was renamed {looks_max} times while it was looked at")

    def _header(self, head: list[Any], plog_id: PlogId, container_id: int, where: str) -> PlogHeader:
        if not head or head[0][0] != b"0-1":
            raise DataCorruption(f"{where} has no header")
        header = PlogHeader.from_json(head[0][1][1])
        if header.plog_id != plog_id or header.container_id != container_id:
            raise DataCorruption(
                f"{where} is listed for container {container_id}, but says that it is {header.plog_id} of container "
                f"{header.container_id}"
            )
        return header

    async def _token(self, keys: PlogKeys) -> FenceToken | None:
        """``None`` if the plog is gone."""
        epoch, fences = await self._connection.call("HMGET", keys.meta, "epoch", "fences")
        return None if epoch is None else FenceToken(int(epoch), int(fences))

    async def _metadata(self, stream: str, where: str) -> FullRecord | None:
        """The state after the contiguous entries of a metadata plog; ``None`` unless the first is a full record."""
        state, chain, end, after = FullRecord(), Chain(next_sequence=0), 0, "(0-1"
        while page := await self._connection.call("XRANGE", stream, after, "+", "COUNT", entries_at_once):
            for entry_id, fields in page:
                place = f"{where}, offset {fields[1].decode()}"
                if int(fields[1]) != end:
                    return state if end else None
                entry = decode_entry(fields[3], place)
                check_kind(entry, PlogEntryKind.METADATA, place)
                chain.accept(entry, LogAddress(0, end), place)
                record = decode_record(entry.payload)
                if end == 0 and not isinstance(record, FullRecord):
                    return None
                state = apply(state, record)
                end = int(entry_id.partition(b"-")[0])
                after = f"({entry_id.decode()}"
        return state if end else None
