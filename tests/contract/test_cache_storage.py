"""Runs the contract of ``CacheStorage``."""

from __future__ import annotations

import pytest

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.contracts.cache_storage import CacheStorage
from tests.contract.cache_storage_contract import CacheStorageContract


class TestInMemoryCacheStorage(CacheStorageContract):
    @pytest.fixture
    def cache(self) -> CacheStorage:
        return InMemoryCacheStorage(1024 * 1024)
