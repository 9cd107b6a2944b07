"""Table requests of recorded conversations, done again against a table store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pravega_common.errors import PravegaError
from pravega_common.wire import commands
from pravega_common.wire.codec import decode
from pravega_common.wire.commands import Command
from segment_service.contracts.table_store import TableStore
from segment_service.host.error_replies import error_reply
from segment_service.host.table_requests import TableRequests
from tests.support.recordings import RecordedFrame, frames_of


@dataclass(frozen=True)
class Exchange:
    """A recorded request, what the real store answered (``None``: it closed the connection), and what ours did."""

    frame: RecordedFrame
    request: Any
    recorded: Any
    ours: Any


def handlers(tables: TableStore) -> dict[type[Command], Callable[[Any], Awaitable[Command]]]:
    requests = TableRequests(tables)
    return {
        commands.CreateTableSegment: requests.create,
        commands.DeleteTableSegment: requests.delete,
        commands.GetTableSegmentInfo: requests.info,
        commands.UpdateTableEntries: requests.update,
        commands.RemoveTableKeys: requests.remove,
        commands.ReadTable: requests.read,
        commands.ReadTableKeys: requests.read_keys,
        commands.ReadTableEntries: requests.read_entries,
        commands.ReadTableEntriesDelta: requests.read_delta,
    }


async def replay(path: Path, tables: TableStore) -> list[Exchange]:
    """All whole table requests of one recording, in order; those on segments that are no tables are left out."""
    done: list[Exchange] = []
    frames = list(frames_of(path))
    handlers_ = handlers(tables)
    for position, frame in enumerate(frames):
        if not frame.is_request or frame.is_cut_short or frame.type_code is None:
            continue
        try:
            request: Any = decode(frame.type_code, memoryview(frame.payload))
        except PravegaError:
            continue
        handler = handlers_.get(type(request))
        if handler is None:
            continue
        recorded = _answer(frames[position + 1 :], frame, request.request_id)
        try:
            ours: Any = await handler(request)
        except PravegaError as error:
            ours = error_reply(error, request.request_id, request.segment, "")
        done.append(Exchange(frame, request, recorded, ours))
    return done


def _answer(later: list[RecordedFrame], request: RecordedFrame, request_id: int) -> Any:
    for frame in later:
        if frame.connection != request.connection or frame.is_request:
            continue
        if frame.type_code is None:
            return None
        reply: Any = decode(frame.type_code, memoryview(frame.payload))
        if getattr(reply, "request_id", None) == request_id:
            return reply
    return None
