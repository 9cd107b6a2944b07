"""Runs the contract of ``TableStore`` on tables over segments and on the fake."""

from __future__ import annotations

import pytest

from segment_service.contracts.table_store import TableStore
from segment_service.tables import paged_index, paging
from segment_service.tables.table_extension import TableExtension
from tests.contract.table_store_contract import TableStoreContract
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps
from tests.support.fakes.table_store import InMemoryTableStore


class TestTableExtension(TableStoreContract):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return TableExtension(InMemorySegmentStore())


class TestTableExtensionWithoutInlineValues(TableStoreContract):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return TableExtension(InMemorySegmentStore(), inline_value_bytes_max=0)


class TestTableExtensionWithIndexInTier2(TableStoreContract):
    @pytest.fixture
    async def tables(self, monkeypatch: pytest.MonkeyPatch) -> TableStore:
        monkeypatch.setattr(paging, "keys_in_memory_max", 0)
        monkeypatch.setattr(paged_index, "flush_keys", 1)
        return TableExtension(InMemorySegmentStore(), maps=await TableMaps().open())


class TestInMemoryTableStore(TableStoreContract):
    @pytest.fixture
    async def tables(self) -> TableStore:
        return InMemoryTableStore(InMemorySegmentStore())
