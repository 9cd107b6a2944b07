"""Runs the contract of ``SegmentStorage`` over every chunk storage."""

from __future__ import annotations

from tests.contract.segment_storage_contract import SegmentStorageContract
from tests.support.chunk_storages import OverArrow, OverFilesystem, OverMemory, OverMinio


class TestOverMemory(OverMemory, SegmentStorageContract):
    pass


class TestOverFilesystem(OverFilesystem, SegmentStorageContract):
    pass


class TestOverArrow(OverArrow, SegmentStorageContract):
    pass


class TestOverMinio(OverMinio, SegmentStorageContract):
    pass
