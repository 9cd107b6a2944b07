"""Runs the contract of ``VersionedStore`` in memory and on the tables of a segment store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.table_backend import TableVersionedStore
from controller_service.store.versioned_store import VersionedStore
from pravega_streams.table.table_client import TableClient
from tests.contract.versioned_store_contract import VersionedStoreContract
from tests.support.store_in_process import running_store


class TestInMemoryVersionedStore(VersionedStoreContract):
    @pytest.fixture
    def store(self) -> VersionedStore:
        return InMemoryVersionedStore()


class TestTableVersionedStore(VersionedStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[VersionedStore]:
        async with running_store(tmp_path) as store:
            yield TableVersionedStore(TableClient(store.client))
