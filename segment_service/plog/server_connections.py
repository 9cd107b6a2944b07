"""Keeps the two connections to one plog server: opened when needed, audited, and only to the server on record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from pravega_common.errors import DataCorruption, Unavailable
from pravega_common.services.cluster.redis_audit import (
    CONFIG_NAMES,
    INFO_SECTIONS,
    find_login_problems,
    find_problems,
    parse_info,
    refuse_unsafe,
)
from pravega_common.services.redis_access import RedisAccess
from segment_service.plog.plog import SET_IDENTITY, identity_key
from segment_service.plog.redis_connection import RedisConnection, ReplyError

WAY_OUT: Final = (
    "give it its append-only file; if a majority of its group is gone for good, run pravega-spark store restore"
)
"""What an operator does about a server that lost its data."""

IdentityOf = Callable[[str | None], Awaitable[str | None]]
"""The identity on record for a server; given the one that it shows, that one is put on record if none is."""


class ServerLost(DataCorruption):
    """A server shows no identity or another one than on record: it lost its data or was replaced. It counts for no
    majority until it is repaired."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; {WAY_OUT}")


class ConnectionSettings(Protocol):
    """The part of ``PlogSettings`` that connections need."""

    @property
    def prefix(self) -> str: ...
    @property
    def allow_unsafe_redis(self) -> bool: ...
    @property
    def connect_timeout_s(self) -> float: ...
    @property
    def reply_timeout_s(self) -> float: ...
    @property
    def access(self) -> RedisAccess: ...


async def refuse_unsafe_server(
    connection: RedisConnection, access: RedisAccess, *, allow_unsafe: bool
) -> Mapping[str, str]:
    """Reads a server's state and settings; returns what INFO says.

    ``ConfigurationError`` if it could lose data that it acknowledged, ``Unavailable`` while it loads its data.
    """
    address = connection.address
    info: dict[str, str] = {}
    config: dict[str, str] = {}
    for section in INFO_SECTIONS:
        info.update(parse_info((await connection.call("INFO", section)).decode()))
    if info.get("loading", "0") != "0":
        raise Unavailable(f"Redis at {address} is loading its data")
    try:
        for name in CONFIG_NAMES:
            pairs = await connection.call("CONFIG", "GET", name)
            config.update({pairs[0].decode(): pairs[1].decode()} if pairs else {})
    except ReplyError as error:
        # A managed server without CONFIG: what could not be read counts as unsafe below.
        structlog.get_logger().warning("settings cannot be read", address=address, error=str(error))
    problems = find_problems(info, config) + await _login_problems(connection, access)
    refuse_unsafe(address, problems, allow_unsafe=allow_unsafe)
    return info


async def _login_problems(connection: RedisConnection, access: RedisAccess) -> list[str]:
    if access.is_of_default_user:
        return []  # whatever this connection may do, a restart may replay
    try:
        return find_login_problems(await connection.call("ACL", "GETUSER", "default"))
    except ReplyError:
        return find_login_problems(None)


class ServerConnections:
    """One connection for data appends, one for everything else."""

    def __init__(self, address: str, settings: ConnectionSettings, identity_of: IdentityOf) -> None:
        self.address = address
        self.data: RedisConnection | None = None
        """What data appends go through; ``None`` before the first ``open_data``."""
        self.data_number = 0
        """Number of data connections opened: appends of one plog must not change over to a later one."""
        self.run_id = ""
        """Random number that Redis draws at each start of its process; of the server as last audited."""
        self._settings = settings
        self._identity_of = identity_of
        self._identity: str | None = None
        self._control: RedisConnection | None = None
        self._connecting = asyncio.Lock()

    async def move(self, address: str) -> None:
        """Connect to another address from now on; the server there has to show the identity on record."""
        async with self._connecting:  # nothing that is still connecting to the old one is kept
            self.reset()
            self.address, self.run_id = address, ""

    def reset(self) -> None:
        """Drop both connections; unanswered requests end with ``ConnectionLost``. The next call connects again."""
        for connection in (self.data, self._control):
            if connection is not None:
                connection.abort()
        self.data = self._control = None

    def reset_data(self) -> None:
        """Drop the connection for data appends."""
        if self.data is not None:
            self.data.abort()

    async def open_data(self) -> None:
        """Connect (and audit) if needed."""
        await self.control()
        async with self._connecting:
            if self.data is None or not self.data.is_open:
                self.data = await self._open()
                self.data_number += 1

    async def control(self) -> RedisConnection:
        """The connection for everything but data appends, open and audited."""
        async with self._connecting:
            if self._control is None or not self._control.is_open:
                connection = await self._open()
                try:
                    await self._audit(connection)
                except BaseException:
                    connection.abort()
                    raise
                self._control = connection
            return self._control

    async def _open(self) -> RedisConnection:
        return await RedisConnection.open(
            self.address,
            connect_timeout_s=self._settings.connect_timeout_s,
            reply_timeout_s=self._settings.reply_timeout_s,
            access=self._settings.access,
        )

    async def _audit(self, connection: RedisConnection) -> None:
        info = await refuse_unsafe_server(
            connection, self._settings.access, allow_unsafe=self._settings.allow_unsafe_redis
        )
        await self._check_identity(connection)
        self.run_id = info.get("run_id", "")

    async def _check_identity(self, connection: RedisConnection) -> None:
        """A server that shows another identity than before was emptied or replaced: it is lost, not empty."""
        key = identity_key(self._settings.prefix)
        # The record first: it is made after the key, so another client that is just making both looks like no loss.
        on_record = self._identity or await self._identity_of(None)
        shown = await connection.call("GET", key)
        if self._identity is not None and (shown is None or shown.decode() != self._identity):
            on_record = await self._identity_of(None)  # another one may have been admitted in its place
        if shown is None and on_record is None:
            await connection.run(SET_IDENTITY, (key, f"{key}:none"), secrets.token_hex(16))
            shown = await connection.call("GET", key)
        if shown is not None and on_record is None:
            on_record = await self._identity_of(shown.decode())
        if shown is None or shown.decode() != on_record:
            found = "no identity" if shown is None else f"identity {shown.decode()}"
            raise ServerLost(
                f"Redis at {self.address} shows {found} instead of {on_record}: it lost its data or was replaced"
            )
        self._identity = on_record
