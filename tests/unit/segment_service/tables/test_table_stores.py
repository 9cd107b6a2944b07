"""Both table stores keep one contract: tables over segments, and the twin that tests of other parts use."""

from __future__ import annotations

import pytest

from segment_service.contracts.table_store import TableStore
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.unit.segment_service.tables.table_store_suite import TableStoreSuite


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
