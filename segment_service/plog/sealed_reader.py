"""Reads a sealed plog from one server, and in a group goes on with another one where that one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import structlog

from pravega_common.errors import DataCorruption, Fenced, PravegaError, Unavailable
from segment_service.plog.group_servers import Answers, GroupServers
from segment_service.plog.plog import PlogId, PlogStatus
from segment_service.plog.plog_client import PlogClient, PlogMissing, StoredEntry
from segment_service.plog.server_connections import ServerLost

renames_max: Final = 10
"""Times that a copy is looked at again in one read, as its owner renamed it: to complete, to seal or to fence it."""


async def read_sealed(
    servers: GroupServers, plog_id: PlogId, epoch: int, start: int, end: int
) -> AsyncIterator[StoredEntry]:
    """As ``PersistenceGroupClient.read_sealed``."""
    position = start
    answers: Answers[None] = Answers(len(servers))
    for index in sorted(range(len(servers)), key=lambda index: not servers.is_near(index)):
        server = servers.clients[index]
        try:
            async for stored in read_copy(server, plog_id, epoch, position, end):
                position = stored.end
                yield stored
            return
        except PravegaError as error:
            if isinstance(error, Fenced):
                raise
            answers.errors[index] = error
            is_copy_bad = isinstance(error, DataCorruption) and not isinstance(error, ServerLost)
            if is_copy_bad:
                servers.damaged[index].add(plog_id)
            text = "a copy of a plog is to be repaired" if is_copy_bad else "a plog is read from another server"
            structlog.get_logger().warning(text, address=server.address, plog_id=str(plog_id), error=str(error))
    raise _verdict(answers, plog_id)


async def entry_over(servers: GroupServers, plog_id: PlogId, epoch: int, byte: int, end: int) -> StoredEntry:
    """As ``PersistenceGroupClient.entry_over``."""
    answers: Answers[None] = Answers(len(servers))
    for index in sorted(range(len(servers)), key=lambda index: not servers.is_near(index)):
        try:
            return await copied_entry_over(servers.clients[index], plog_id, epoch, byte, end)
        except PravegaError as error:
            if isinstance(error, Fenced):
                raise
            answers.errors[index] = error
    raise _verdict(answers, plog_id)


async def copied_entry_over(server: PlogClient, plog_id: PlogId, epoch: int, byte: int, end: int) -> StoredEntry:
    """The entry of one copy that holds a byte; ``DataCorruption`` unless it is there and intact."""
    for _ in range(renames_max):
        status = await _readable(server, plog_id, epoch)
        try:
            stored = await server.entry_over(plog_id, status.token, byte, end)
        except Fenced:
            continue  # ``_readable`` tells whether that was a later owner
        where = f"plog {plog_id} on {server.address}, offset {byte}"
        if stored is None or stored.start > byte:
            raise DataCorruption(f"{where}: no entry holds it: the server lost data")
        stored.decode(where)
        return stored
    raise _renamed_too_often(server, plog_id)


async def _readable(server: PlogClient, plog_id: PlogId, epoch: int) -> PlogStatus:
    status = await server.status(plog_id)
    if status is None:
        raise PlogMissing(f"plog {plog_id} is gone: data was lost")
    if status.token.epoch > epoch:
        raise Fenced(f"plog {plog_id}: epoch {status.token.epoch} took over")
    return status


async def read_copy(
    server: PlogClient, plog_id: PlogId, epoch: int, start: int, end: int
) -> AsyncIterator[StoredEntry]:
    """The entries of one copy; ``DataCorruption`` unless they are intact, without a gap, and reach ``end``.

    The reader's own owner may rename the copy meanwhile: its repair completes and seals it. The read goes on then.
    """
    position = start
    for _ in range(renames_max):
        status = await _readable(server, plog_id, epoch)
        try:
            async for stored in server.read(plog_id, status.token, position, end):
                where = f"plog {plog_id} on {server.address}, offset {stored.start}"
                if stored.start != position:
                    raise DataCorruption(f"{where}: the entry before it ends at {position}")
                stored.decode(where)
                position = stored.end
                yield stored
        except Fenced:
            continue  # ``_readable`` tells whether that was a later owner
        if position != end:
            raise DataCorruption(
                f"plog {plog_id} on {server.address} ends at {position}, but was sealed at {end}: the server lost data"
            )
        return
    raise _renamed_too_often(server, plog_id)


def _renamed_too_often(server: PlogClient, plog_id: PlogId) -> Unavailable:
    return Unavailable(f"plog {plog_id} was renamed {renames_max} times on {server.address} while it was read")


def _verdict(answers: Answers[None], plog_id: PlogId) -> PravegaError:
    """The error for a plog of which no server has a good copy."""
    errors = list(answers.errors.values())
    if not all(isinstance(error, DataCorruption) for error in errors):
        return Unavailable(f"plog {plog_id}: {'; '.join(str(error) for error in errors)}")
    return next((error for error in errors if isinstance(error, PlogMissing)), errors[0])
