"""Speaks to one plog server: the plog operations on that Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import ConfigurationError, DataCorruption, FailedError, Fenced, Unavailable
from pravega_common.invariants import check
from pravega_common.services.cluster.redis_audit import memory_of
from pravega_common.services.cluster.redis_script import Script
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import frame_bytes_max
from segment_service.plog.append_quorum import OnAppended
from segment_service.plog.entry import PlogEntry, decode_entry, envelope_bytes
from segment_service.plog.plog import (
    APPEND_SMALL,
    CREATE,
    DELETE,
    FENCE,
    REMAKE,
    SEAL,
    TRIM,
    FenceToken,
    PlogHeader,
    PlogId,
    PlogKeys,
    PlogStatus,
    index_key,
    plog_block_bytes_service,
)
from segment_service.plog.redis_connection import Reply
from segment_service.plog.server_connections import WAY_OUT, IdentityOf, ServerConnections

read_page_bytes: Final = 4 * 1024 * 1024
"""Bytes asked for by one range read; ids are byte offsets."""
read_page_entries_max: Final = 500
"""Entries of one range read. All of a page are decoded and checked in one turn of the loop, three copies of them where
there are three servers: that takes up to 30 ms, however small they are."""
trim_entries_max: Final = 1_000
"""Entries that one script removes; Redis takes some thousand arguments."""
move_attempts_max: Final = 10
"""Tries of a fence, seal or delete whose plog was renamed by somebody else in between."""


@dataclass(frozen=True, slots=True)
class PlogSettings:
    """The settings of a plog client."""

    block_bytes: int = plog_block_bytes_service
    """Size at which a plog is full."""
    prefix: str = "pravega:plog:"
    """Begin of every key, so that clusters can share a server."""
    allow_unsafe_redis: bool = False
    connect_timeout_s: float = 5.0
    reply_timeout_s: float = 10.0
    heal_time_max_s: float = 30.0
    """How long a log tries to get over a broken connection, a restarted or a full server."""
    access: RedisAccess = OPEN_ACCESS

    def __post_init__(self) -> None:
        smallest = frame_bytes_max + envelope_bytes
        if self.block_bytes < smallest:
            raise ConfigurationError(f"plogs of {self.block_bytes} bytes hold no full frame; use {smallest} or more")


class AppendRefused(FailedError):
    """The plog did not take the append: it was fenced, sealed or lost, or its server is full."""


class PlogMissing(DataCorruption):
    """A plog that must exist does not: the server lost data."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; {WAY_OUT}")


@dataclass(frozen=True, slots=True)
class ServerPlog:
    """The copy of a plog on one server, under the name that its owner appends to."""

    plog_id: PlogId
    token: FenceToken
    stream: str
    append_prefix: bytes
    """The part of every append command that does not change."""
    run_id: str
    """The run of the server that made the copy."""


@dataclass(slots=True)
class StoredEntry:
    """The bytes of an entry as the server holds them, with their place in the plog."""

    start: int
    end: int
    data: bytes
    _decoded: PlogEntry | None = None

    def decode(self, where: str) -> PlogEntry:
        """The entry, checked once; ``DataCorruption`` naming ``where`` if it is damaged."""
        if self._decoded is None:
            self._decoded = decode_entry(self.data, where)
        return self._decoded


def next_token(plog_id: PlogId, old: FenceToken, epoch: int) -> FenceToken:
    """The token that follows ``old`` for an owner at ``epoch``; ``Fenced`` if that is below."""
    if old.epoch > epoch:
        raise Fenced(f"plog {plog_id} belongs to epoch {old.epoch}, above {epoch}")
    return FenceToken(epoch, old.fences + 1) if old.epoch == epoch else FenceToken(epoch)


class PlogClient:
    """The client of the plogs of one server. Two connections: one for data appends, one for everything else.

    Not shared between logs: ``append`` keeps the order of its calls because nobody else uses its connection.
    """

    def __init__(self, address: str, settings: PlogSettings, identity_of: IdentityOf) -> None:
        self.connections = ServerConnections(address, settings, identity_of)
        self._settings = settings

    @property
    def address(self) -> str:
        return self.connections.address

    async def move(self, address: str) -> None:
        """Speak to the server at another address from now on; unanswered appends end with ``ConnectionLost``."""
        await self.connections.move(address)

    def reset(self) -> None:
        """Drop both connections; unanswered appends end with ``ConnectionLost``. The next call connects again."""
        self.connections.reset()

    async def open_for_appends(self) -> None:
        """Connect (and audit) if needed; ``append`` needs an open connection."""
        await self.connections.open_data()

    def append(self, plog: ServerPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """Send one entry of ``size`` bytes to the plog's offset ``start``; ``done`` hears ``None`` once durable.

        One native XADD: the payload passes through no script and is not joined here.
        """
        end_id = b"%d-0" % (start + size)
        start_text = b"%d" % start
        head = b"%b$%d\r\n%b\r\n$1\r\ns\r\n$%d\r\n%b\r\n$1\r\nd\r\n$%d\r\n" % (
            plog.append_prefix,
            len(end_id),
            end_id,
            len(start_text),
            start_text,
            size,
        )

        self._send_append(plog, end_id, [head, *frame, b"\r\n"], done)

    def append_urgent(self, plog: ServerPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """As ``append``, also on a server that is full: through a script, and so at a fraction of the speed."""
        end_id = b"%d-0" % (start + size)
        none = self._keys(plog.plog_id).none
        head = [b"*8\r\n"]
        for argument in ("EVAL", APPEND_SMALL.body, "2", plog.stream, none, end_id, b"%d" % start):
            data = argument if isinstance(argument, bytes) else argument.encode()
            head.append(b"$%d\r\n%b\r\n" % (len(data), data))
        head.append(b"$%d\r\n" % size)
        self._send_append(plog, end_id, [b"".join(head), *frame, b"\r\n"], done)

    def _send_append(self, plog: ServerPlog, end_id: bytes, request: Sequence[Buffer], done: OnAppended) -> None:
        def on_reply(reply: Reply) -> None:
            if reply == end_id:
                done(None)
            elif isinstance(reply, BaseException):
                done(reply)
            else:
                done(AppendRefused(f"plog {plog.plog_id} is not at {plog.stream} any more: fenced, or lost"))

        data = self.connections.data
        if data is None:
            done(Unavailable(f"not connected to Redis at {self.address}"))
            return
        data.send(request, on_reply)

    async def has_room(self) -> bool:
        """Whether the server, as it is now, takes commands that need memory."""
        return memory_of((await (await self.connections.control()).call("INFO", "memory")).decode()).has_room

    async def create(self, header: PlogHeader) -> ServerPlog:
        """Make an empty plog; the id must be a new one.

        ``AppendRefused`` where a repair put a copy of it before this came: a server that was slow to answer is left to
        the repair, which may be quicker.
        """
        token = FenceToken(header.epoch)
        if await self._make(CREATE, header, token) != b"ok":
            found = await self.header(header.plog_id)
            check(found == header, "plog id used twice", plog_id=str(header.plog_id), found=found.to_json())
            raise AppendRefused(f"plog {header.plog_id} was copied there before {self.address} came to create it")
        stream = self._keys(header.plog_id).stream(token)
        prefix = b"*8\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$10\r\nNOMKSTREAM\r\n" % (len(stream.encode()), stream.encode())
        return ServerPlog(header.plog_id, token, stream, prefix, self.connections.run_id)

    async def remake(self, header: PlogHeader, token: FenceToken) -> None:
        """Put an empty copy under ``token`` in the place of one that is damaged or not there."""
        if await self._make(REMAKE, header, token) != b"ok":
            raise Fenced(f"plog {header.plog_id} belongs to an epoch above {token.epoch}")

    async def _make(self, script: Script, header: PlogHeader, token: FenceToken) -> Reply:
        keys = self._keys(header.plog_id)
        names = (keys.meta, keys.stream(token), index_key(self._settings.prefix, header.container_id))
        arguments = (token.epoch, token.fences, header.to_json(), str(header.plog_id))
        connection = await self.connections.control()
        return await connection.run(script, names, *arguments, self.connections.run_id)

    async def append_small(self, plog: ServerPlog, start: int, frame: bytes) -> None:
        """Append a metadata entry, also on a server that is full; ``AppendRefused`` if the plog is not there."""
        await self._append_in_script(plog.plog_id, plog.stream, start, frame)

    async def append_copy(self, plog_id: PlogId, token: FenceToken, entry: StoredEntry) -> None:
        """Append an entry of another copy where this one ends; ``AppendRefused`` if it ends elsewhere."""
        await self._append_in_script(plog_id, self._keys(plog_id).stream(token), entry.start, entry.data)

    async def _append_in_script(self, plog_id: PlogId, stream: str, start: int, data: bytes) -> None:
        names = (stream, self._keys(plog_id).none)
        connection = await self.connections.control()
        if await connection.run(APPEND_SMALL, names, f"{start + len(data)}-0", start, data) is None:
            raise AppendRefused(f"plog {plog_id} does not end at {start} in {stream} any more: fenced, or lost")

    async def trim(self, plog_id: PlogId, token: FenceToken, end: int, entry_ends: Sequence[int]) -> None:
        """Remove the entries that end at ``entry_ends``, all of them behind ``end``, where the next one goes then."""
        ids = [f"{end}-0" if end else "0-1", *(f"{offset}-0" for offset in sorted(entry_ends))]
        while len(ids) > 1:  # the last ones first, so that the next entry has a place behind what is left at any time
            rest = ids[:-trim_entries_max] if len(ids) > trim_entries_max else ids[:1]
            connection = await self.connections.control()
            await connection.run(TRIM, (self._keys(plog_id).stream(token),), rest[-1], *ids[len(rest) :])
            ids = rest

    async def status(self, plog_id: PlogId) -> PlogStatus | None:
        """``None`` if the plog does not exist."""
        keys = self._keys(plog_id)
        connection = await self.connections.control()
        epoch, fences, sealed, run = await connection.call("HMGET", keys.meta, "epoch", "fences", "sealed", "run")
        if epoch is None:
            return None
        same_run = run is not None and run.decode() == self.connections.run_id
        return PlogStatus(FenceToken(int(epoch), int(fences)), None if sealed is None else int(sealed), same_run)

    async def fence(self, plog_id: PlogId, epoch: int) -> PlogStatus:
        """Rename the plog so that nobody else can append; ``Fenced`` if its epoch is higher already."""
        for _ in range(move_attempts_max):
            old = await self._existing(plog_id)
            new = next_token(plog_id, old.token, epoch)
            if await self._rename(plog_id, old.token, new):
                return PlogStatus(new, old.sealed, old.same_run)
        raise Unavailable(f"plog {plog_id} was renamed {move_attempts_max} times while being fenced")

    async def fence_as(self, plog_id: PlogId, new: FenceToken) -> PlogStatus:
        """As ``fence``, to the token that all servers of a group are to have."""
        for _ in range(move_attempts_max):
            old = await self._existing(plog_id)
            if old.token > new:
                text = f"plog {plog_id} has token {old.token} on {self.address}, above {new}"
                raise Fenced(text) if old.token.epoch > new.epoch else Unavailable(text)
            if old.token == new or await self._rename(plog_id, old.token, new):
                return PlogStatus(new, old.sealed, old.same_run)
        raise Unavailable(f"plog {plog_id} was renamed {move_attempts_max} times while being fenced")

    async def _rename(self, plog_id: PlogId, old: FenceToken, new: FenceToken) -> bool:
        keys = self._keys(plog_id)
        names = (keys.meta, keys.stream(old), keys.stream(new))
        arguments = (old.epoch, old.fences, new.epoch, new.fences)
        return self._moved_as_asked(plog_id, await (await self.connections.control()).run(FENCE, names, *arguments))

    async def seal(self, plog_id: PlogId, epoch: int, offset: int, *, whole: bool = False) -> int:
        """Seal at the smaller of ``offset`` and the plog's length, and answer it; the first seal stands.

        ``whole``: seal at ``offset`` instead of an earlier one, or not at all if the plog is shorter.
        """
        keys = self._keys(plog_id)
        for _ in range(move_attempts_max):
            old = await self._existing(plog_id)
            if old.sealed is not None and (not whole or old.sealed == offset):
                return old.sealed
            new = next_token(plog_id, old.token, epoch)
            names = (keys.meta, keys.stream(old.token), keys.stream(new))
            arguments = (old.token.epoch, old.token.fences, new.epoch, new.fences, offset, int(whole))
            answer = await (await self.connections.control()).run(SEAL, names, *arguments)
            if self._moved_as_asked(plog_id, answer):
                return int(answer[1])
        raise Unavailable(f"plog {plog_id} was renamed {move_attempts_max} times while being sealed")

    async def delete(self, plog_id: PlogId, container_id: int, epoch: int) -> bool:
        """Delete a plog unless a higher epoch has it; false in that case. A missing plog counts as deleted."""
        keys = self._keys(plog_id)
        for _ in range(move_attempts_max):
            status = await self.status(plog_id)
            token = FenceToken(0) if status is None else status.token
            names = (keys.meta, keys.stream(token), index_key(self._settings.prefix, container_id))
            arguments = (token.epoch, token.fences, epoch, str(plog_id))
            answer = await (await self.connections.control()).run(DELETE, names, *arguments)
            if answer != b"moved":
                return bool(answer == b"ok")
        raise Unavailable(f"plog {plog_id} was renamed {move_attempts_max} times while being deleted")

    async def list_plogs(self, container_id: int) -> list[PlogId]:
        """All plogs of a container on this server, in no order."""
        answer = await (await self.connections.control()).call(
            "SMEMBERS", index_key(self._settings.prefix, container_id)
        )
        return [PlogId.parse(text.decode()) for text in answer]

    async def header(self, plog_id: PlogId) -> PlogHeader:
        answer = await self._entry_at(plog_id, "0-1")
        if not answer:
            raise PlogMissing(f"plog {plog_id} on {self.address} has no header")
        return PlogHeader.from_json(answer[0][1][1])

    async def has_entry_at(self, plog_id: PlogId, offset: int) -> bool:
        """Whether an entry of the plog ends at ``offset``, so that another one may begin there."""
        return bool(await self._entry_at(plog_id, f"{offset}-0"))

    async def has_entries(self, plog_id: PlogId) -> bool:
        status = await self._existing(plog_id)
        async for _ in self.read(plog_id, status.token, 0, 2**62):
            return True
        return False

    async def _entry_at(self, plog_id: PlogId, entry_id: str) -> Reply:
        """Read one entry; an empty answer comes only from a plog that was not renamed meanwhile."""
        status = await self._existing(plog_id)
        for _ in range(move_attempts_max):
            stream = self._keys(plog_id).stream(status.token)
            answer = await (await self.connections.control()).call("XRANGE", stream, entry_id, entry_id)
            asked, status = status, await self._existing(plog_id)
            if answer or status.token == asked.token:
                return answer
        raise Unavailable(f"plog {plog_id} was renamed {move_attempts_max} times while being read")

    async def entry_over(self, plog_id: PlogId, token: FenceToken, byte: int, end: int) -> StoredEntry | None:
        """The entry that holds a byte of the plog below ``end``; ``None`` without one."""
        async for stored in self.read(plog_id, token, byte, end, page_bytes=1):
            return stored
        return None

    async def read(
        self, plog_id: PlogId, token: FenceToken, start: int, end: int, *, page_bytes: int = read_page_bytes
    ) -> AsyncIterator[StoredEntry]:
        """The entries with ``start`` < entry end ≤ ``end`` in order, gaps included, in pages of bounded size.

        ``Fenced`` if the plog does not carry ``token`` to the very end of the read.
        """
        stream = self._keys(plog_id).stream(token)
        position = start
        while position < end:
            after = "(0-1" if position == 0 else f"({position}-0"
            page_end = min(end, position + page_bytes)
            connection = await self.connections.control()
            page = await connection.call("XRANGE", stream, after, f"{page_end}-0", "COUNT", read_page_entries_max)
            if not page:
                page = await connection.call("XRANGE", stream, after, f"{end}-0", "COUNT", 1)
            if not page:
                break
            for entry_id, fields in page:
                entry = self._entry(plog_id, entry_id, fields)
                position = entry.end
                yield entry
        status = await self._existing(plog_id)
        if status.token != token:
            raise Fenced(f"plog {plog_id} was fenced by {status.token} while it was read with {token}")

    def _entry(self, plog_id: PlogId, entry_id: bytes, fields: list[bytes]) -> StoredEntry:
        where = f"plog {plog_id} on {self.address}, entry {entry_id.decode()}"
        if len(fields) != 4 or fields[0] != b"s" or fields[2] != b"d" or not fields[1].isdigit():
            raise DataCorruption(f"{where}: is not an append")
        start, end, data = int(fields[1]), int(entry_id.partition(b"-")[0]), fields[3]
        if end - start != len(data):
            raise DataCorruption(f"{where}: holds {len(data)} bytes, its offsets say {end - start}")
        return StoredEntry(start, end, data)

    def _moved_as_asked(self, plog_id: PlogId, answer: list[bytes]) -> bool:
        verdict = answer[0]
        if verdict == b"missing":
            raise PlogMissing(f"plog {plog_id} is not on Redis at {self.address}: the server lost data")
        check(verdict in (b"ok", b"short", b"moved"), "the plog's next name is taken", plog_id=str(plog_id))
        return verdict != b"moved"

    async def _existing(self, plog_id: PlogId) -> PlogStatus:
        status = await self.status(plog_id)
        if status is None:
            raise PlogMissing(f"plog {plog_id} is not on Redis at {self.address}: the server lost data")
        return status

    def _keys(self, plog_id: PlogId) -> PlogKeys:
        return PlogKeys(self._settings.prefix, plog_id)
