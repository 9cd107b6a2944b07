"""Adds batches of records to a table's log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pravega_common.errors import UnknownOutcome
from segment_service.contracts.segment_store import SegmentStore
from segment_service.tables.entry_serializer import serialize_put, serialize_removal
from segment_service.tables.table_segment import Batch, TableSegment, Update


def serialize(updates: Sequence[Update]) -> bytes:
    return b"".join(
        serialize_removal(update.key)
        if update.value is None
        else serialize_put(update.key, update.value, update.version)
        for update in updates
    )


def append_batch(store: SegmentStore, table: TableSegment, updates: Sequence[Update]) -> Batch:
    """Give the batch its place and append it, at once and without awaiting; ``batch.done`` holds the result.

    The end is noted when the append ends, also if its caller has gone away by then.
    """
    batch = table.begin(updates)

    def ended(future: asyncio.Future[int]) -> None:
        error = UnknownOutcome(f"{table.name}: the append was given up") if future.cancelled() else future.exception()
        table.end(batch, error)

    try:
        appended = store.append(table.name, (serialize(updates),), expected_offset=batch.offset)
    except BaseException as error:
        table.end(batch, error)
        raise
    appended.add_done_callback(ended)
    return batch
