"""Every block cache keeps the contract."""

from __future__ import annotations

import pytest

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.contracts.cache_storage import CacheStorage
from tests.contract.cache_storage_suite import CacheStorageSuite


class TestInMemoryCacheStorage(CacheStorageSuite):
    @pytest.fixture
    def cache(self) -> CacheStorage:
        return InMemoryCacheStorage(1024 * 1024)
