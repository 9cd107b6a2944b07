"""Moves the key index of a table that grew large to Tier 2, and flushes it from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from pravega_common.errors import Fenced, PravegaError, Unavailable
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.attributes import TABLE_INDEX_IN_TIER2, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.segment_store import SegmentStore
from segment_service.contracts.table_maps import TableMapSource
from segment_service.tables.key_index import InlineBudget, KeyIndex
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_segment import TableSegment

ATTRIBUTE_SET: Final = register("tables.paging.attribute_set_before_flush")

keys_in_memory_max: Final = 20_000
"""A table with more keys has its index in Tier 2."""
log_in_memory_bytes_max: Final = 64 * 1024 * 1024
"""A table with a longer log, too: it is not read as a whole after a restart."""
retry_growth: Final = 1.1
"""After an attempt that failed the next one is made when the number of keys has grown by this factor."""

_log = structlog.get_logger(service="tables")


class Pager:
    """Brings the indexes of large tables to Tier 2, beside their updates."""

    def __init__(self, store: SegmentStore, maps: TableMapSource, budget: InlineBudget) -> None:
        self._store = store
        self._maps = maps
        self._budget = budget

    def make_index(self, table: str, segment_id: int, order_key: Callable[[bytes], bytes]) -> PagedKeyIndex:
        """The index of a table that may have one in Tier 2, still to be loaded."""
        return PagedKeyIndex(table, order_key, self._budget, self._maps.table_map(table, segment_id))

    def is_current(self, table: TableSegment) -> bool:
        """Whether the index is one of the container as it runs now."""
        index = table.index
        return isinstance(index, KeyIndex) or index.table_map is self._maps.table_map(table.name, table.segment_id)

    def is_full(self, table: TableSegment) -> bool:
        """Whether too much has changed since the last flush for another update."""
        return isinstance(table.index, PagedKeyIndex) and table.index.is_full(table.tail - table.indexed_to)

    async def make_room(self, table: TableSegment) -> None:
        """Wait for what is pending, then for a flush if need be. ``Unavailable`` if it fails."""
        await table.drained()
        index = table.index
        if not isinstance(index, PagedKeyIndex) or not index.is_full(0):
            return
        try:
            await index.flush(lambda: table.indexed_to)
        except Fenced:
            raise
        except PravegaError as error:
            raise Unavailable(f"{table.name}: its index cannot be brought to Tier 2: {error}") from error

    def flush_if_due(self, table: TableSegment) -> None:
        """Begin a flush if one is due."""
        index = table.index
        if isinstance(index, PagedKeyIndex) and index.wants_flush(table.indexed_to):
            index.table_map.spawn(self._flush(table, index), "flush-table-index")

    def is_too_large(self, table: TableSegment) -> bool:
        """Whether the index should not be in memory any longer; asked while the log is read, too."""
        keys, log_bytes = len(table.index), table.indexed_to - table.start_offset
        is_large = keys > keys_in_memory_max or log_bytes > log_in_memory_bytes_max
        return isinstance(table.index, KeyIndex) and is_large and keys >= table.keys_max

    async def mark(self, table: TableSegment) -> bool:
        """Note with the segment that its index may be in Tier 2, before anything is there: who opens the table
        knows where to look. Whether that was done; if not, it is tried again when the table has grown."""
        keys, table.keys_max = len(table.index), 1 << 62
        try:
            update = AttributeUpdate(TABLE_INDEX_IN_TIER2, AttributeUpdateType.REPLACE, 1)
            await self._store.update_attributes(table.name, (update,))
            failpoint(ATTRIBUTE_SET)
            return True
        except PravegaError as error:
            _log.info("the index of a table stays in memory", table=table.name, error=repr(error))
            return False
        finally:
            table.keys_max = int(keys * retry_growth) + 1

    async def _flush(self, table: TableSegment, index: PagedKeyIndex) -> None:
        if not index.wants_flush(table.indexed_to):
            return
        try:
            await index.flush(lambda: table.indexed_to)
        except PravegaError as error:
            _log.info("the index of a table could not be flushed", table=table.name, error=repr(error))
