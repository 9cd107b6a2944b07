"""Both table stores keep one contract: tables over segments, and the twin that tests of other parts use."""

from __future__ import annotations

import pytest

from segment_service.contracts.in_memory import InMemorySegmentStore
from segment_service.contracts.in_memory_tables import InMemoryTableStore
from segment_service.contracts.table_store import TableStore
from segment_service.tables.table_extension import TableExtension
from tests.unit.tables.table_store_suite import TableStoreSuite


class TestTableExtension(TableStoreSuite):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return TableExtension(InMemorySegmentStore())


class TestTableExtensionWithoutInlineValues(TableStoreSuite):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return TableExtension(InMemorySegmentStore(), inline_value_bytes_max=0)


class TestInMemoryTableStore(TableStoreSuite):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return InMemoryTableStore(InMemorySegmentStore())
