from __future__ import annotations

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.versioned_store import VersionedStore
from tests.contract.versioned_store_contract import VersionedStoreContract


class TestInMemoryVersionedStore(VersionedStoreContract):
    @pytest.fixture
    def store(self) -> VersionedStore:
        return InMemoryVersionedStore()
