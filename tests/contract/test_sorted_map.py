"""Runs the contract of ``SortedMap`` over every chunk storage."""

from __future__ import annotations

from tests.contract.sorted_map_contract import SortedMapContract
from tests.support.chunk_storages import OverFilesystem, OverMemory, OverMinio


class TestOverMemory(OverMemory, SortedMapContract):
    pass


class TestOverFilesystem(OverFilesystem, SortedMapContract):
    pass


class TestOverMinio(OverMinio, SortedMapContract):
    pass
