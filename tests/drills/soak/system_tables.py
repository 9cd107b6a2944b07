"""Counts the entries and bytes of the tables that controllers keep in scope ``_system``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from controller_service.queue.table_request_queue import REQUESTS_TABLE
from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.sets.sink_index import UNFINISHED_TABLE
from controller_service.sets.sink_store import REGISTRATIONS_TABLE, SETS_TABLE
from controller_service.store.deleted_streams import DELETED_STREAMS_TABLE
from controller_service.store.marked_streams import MARKED_STREAMS_TABLE
from controller_service.store.retained_streams import RETAINED_STREAMS_TABLE
from controller_service.store.scope_store import SCOPE_LISTS, SCOPES_TABLE
from controller_service.store.stream_store import StreamStore
from controller_service.store.table_backend import TABLES_PREFIX, TableVersionedStore
from controller_service.transactions.completed_store import COMPLETED_BATCHES_TABLE
from controller_service.transactions.stream_index import FORMER_TABLE, OWNERS_TABLE
from pravega_common.errors import SegmentNotFound
from pravega_common.runtime.clock import SystemClock
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient
from tests.support.event_world import REQUEST_SEGMENTS, OneStore

TABLES: Final = (
    SCOPES_TABLE,
    DELETED_STREAMS_TABLE,
    REQUESTS_TABLE,
    RETAINED_STREAMS_TABLE,
    MARKED_STREAMS_TABLE,
    FORMER_TABLE,
    OWNERS_TABLE,
    SETS_TABLE,
    REGISTRATIONS_TABLE,
    UNFINISHED_TABLE,
    COMPLETED_BATCHES_TABLE,
)
page_entries: Final = 1_000


async def sizes(port: int, scope: str, stream: str) -> dict[str, float]:
    """The tables of the cluster, those of a scope and of one stream of it, and the internal stream, by name.

    ``port``: of the one store; the cluster has no keys.
    """
    client = RawClient(OneStore(Endpoint("127.0.0.1", port)))
    try:
        tables, access = TableVersionedStore(TableClient(client)), WireSegmentAccess(client)
        store = StreamStore(tables, SystemClock(), lambda: uuid.uuid4().hex)
        opened = await store.open(scope, stream)
        names = {name: name for name in TABLES}
        names |= {kind: await store.list_table(scope, kind) for kind in SCOPE_LISTS}
        names |= {f"{stream} metadata": opened.metadata_table}
        names |= {f"{stream} transactions": store.transactions_table(scope, stream, opened.stream_id)}
        found: dict[str, float] = {}
        for shown, name in names.items():
            try:
                found[f"{shown}: entries"] = await _entries(tables, name)
                found[f"{shown}: KiB"] = await _held_kib(access, [f"{TABLES_PREFIX}{name}"])
            except SegmentNotFound:
                continue  # It is made with its first entry.
        found["_requeststream: KiB"] = await _held_kib(access, REQUEST_SEGMENTS)
        return found
    finally:
        client.close()


async def _entries(tables: TableVersionedStore, table: str) -> int:
    count, token = 0, b""
    while True:
        page = await tables.scan(table, token, page_entries)
        count, token = count + len(page.entries), page.continuation
        if not token:
            return count


async def _held_kib(access: WireSegmentAccess, segments: Sequence[str]) -> float:
    return sum(info.length - info.start_offset for info in await access.infos(segments)) / 1024
