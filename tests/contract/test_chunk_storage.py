"""Runs the contract of ``ChunkStorage``: memory, a directory, Arrow, S3 (a real MinIO), and the faulty fake."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyarrow.fs import FileSystem

from pravega_common.errors import ConfigurationError, Unavailable, UnknownOutcome
from pravega_common.invariants import InvariantViolation
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage import arrow_files
from segment_service.storage.arrow_files import ArrowChunkStorage
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.measured_chunks import MeasuredChunkStorage
from segment_service.storage.minio import MinioChunkStorage, MinioSettings
from tests.contract.chunk_storage_contract import ChunkStorageContract, names
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.servers import MinioServer

HDFS_VARIABLE: Final = "PRAVEGA_TEST_HDFS"


class TestInMemory(ChunkStorageContract):
    @pytest.fixture
    async def storage(self) -> ChunkStorage:
        return InMemoryChunkStorage()

    async def test_a_name_is_used_once(self, storage: ChunkStorage) -> None:
        await storage.put("one", [b"1"])
        with pytest.raises(InvariantViolation):
            await storage.put("one", [b"2"])


class TestMeasured(ChunkStorageContract):
    """The wrapper that counts calls changes nothing of them."""

    @pytest.fixture
    async def storage(self) -> ChunkStorage:
        return MeasuredChunkStorage(InMemoryChunkStorage(), SystemClock())

    async def test_calls_are_counted_with_what_they_moved(self, storage: ChunkStorage) -> None:
        assert isinstance(storage, MeasuredChunkStorage)
        await storage.put("one", [b"12", b"3"])
        assert await storage.get("one", 1, 2) == b"23"
        assert [info.name async for info in storage.list("")] == ["one"]
        assert {call: counts.count for call, counts in storage.latencies.items()} == {
            "put": 1,
            "get": 1,
            "info": 0,
            "list": 1,
            "delete": 0,
        }
        assert (storage.put_bytes, storage.got_bytes, dict(storage.failures)) == (3, 2, {})

    async def test_a_deletion_that_leaves_names_is_a_failure_of_a_store_that_answers(self) -> None:
        inner = FaultyChunkStorage(InMemoryChunkStorage(), random.Random(1), SystemClock(), FaultRates(unavailable=0.5))
        storage = MeasuredChunkStorage(inner, SystemClock())
        failed = await storage.delete_all([str(number) for number in range(100)])
        assert 20 < len(failed) < 80
        assert (storage.failures["delete"], storage.failing_s) == (1, 0)
        inner.stop()
        assert len(await storage.delete_all(["a", "b"])) == 2
        assert storage.failures["delete"] == 2
        assert storage.failing_s > 0


class TestFilesystem(ChunkStorageContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[ChunkStorage]:
        storage = FilesystemChunkStorage(tmp_path / "tier2", threads_max=4)
        await storage.start()
        yield storage
        await storage.close()

    async def test_a_name_is_used_once(self, storage: ChunkStorage) -> None:
        await storage.put("one", [b"1"])
        with pytest.raises(InvariantViolation):
            await storage.put("one", [b"2"])
        assert await storage.get("one", 0, 1) == b"1"

    async def test_another_process_sees_what_was_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("c1/d/1", [b"here"])
        other = FilesystemChunkStorage(tmp_path / "tier2")
        await other.start()
        assert await other.get("c1/d/1", 0, 4) == b"here"
        await other.close()

    async def test_nothing_is_left_of_a_failed_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("file", [b"x"])
        with pytest.raises(Unavailable):
            await storage.put("file/below", [b"y"])
        assert await names(storage, "") == ["file"]
        assert list((tmp_path / "tier2" / ".incoming").iterdir()) == []

    async def test_what_cannot_be_deleted_is_named(self, storage: ChunkStorage) -> None:
        for name in ("folder/file", "one", "two"):
            await storage.put(name, [b"x"])
        failed = await storage.delete_all(["one", "folder", "two"])
        assert {name: type(error) for name, error in failed.items()} == {"folder": Unavailable}
        assert await names(storage, "") == ["folder/file"]

    async def test_an_unwritable_folder_is_refused_at_start(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        storage = FilesystemChunkStorage(tmp_path / "file" / "below")
        with pytest.raises(ConfigurationError, match="create it or choose another"):
            await storage.start()
        await storage.close()

    @pytest.mark.parametrize("name", ["../outside", "/absolute", "a//b", "a/./b", ""])
    async def test_names_cannot_leave_the_folder(self, storage: ChunkStorage, name: str) -> None:
        with pytest.raises(InvariantViolation):
            await storage.put(name, [b"x"])


class ArrowFiles:
    """A file system of Arrow; its subclasses have some of the calls differ."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TestArrow(ChunkStorageContract):
    """On Arrow's local file system."""

    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[ChunkStorage]:
        storage = make_chunk_storage(f"arrow:file://{tmp_path}/with%20space/tier2")
        await storage.start()
        yield storage
        await storage.close()

    async def test_a_name_is_used_once(self, storage: ChunkStorage) -> None:
        await storage.put("one", [b"1"])
        with pytest.raises(InvariantViolation):
            await storage.put("one", [b"2"])
        assert await storage.get("one", 0, 1) == b"1"

    async def test_another_process_sees_what_was_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("c1/d/1", [b"here"])
        other = FilesystemChunkStorage(tmp_path / "with space" / "tier2")
        await other.start()
        assert await other.get("c1/d/1", 0, 4) == b"here"
        assert await names(other, "") == await names(storage, "") == ["c1/d/1"]
        await other.close()

    async def test_nothing_is_left_of_a_failed_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("file", [b"x"])
        with pytest.raises(Unavailable):
            await storage.put("file/below", [b"y"])
        assert await names(storage, "") == ["file"]
        assert list((tmp_path / "with space" / "tier2" / ".incoming").iterdir()) == []

    async def test_a_put_whose_move_fails_is_unknown(
        self, storage: ChunkStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class BrokenMove(ArrowFiles):
            def move(self, source: str, target: str) -> None:
                self._inner.move(source, target)
                raise OSError(110, "the answer was lost")

        assert isinstance(storage, ArrowChunkStorage)
        monkeypatch.setattr(storage, "_files", BrokenMove(storage._files))  # private: Arrow is behind it
        with pytest.raises(UnknownOutcome, match="may not have got its name"):
            await storage.put("c1/1", [b"x"])
        assert await storage.get("c1/1", 0, 1) == b"x"

    async def test_a_list_looks_at_no_folder_beside_that_of_its_prefix(
        self, storage: ChunkStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each load of a segment lists its manifests: it went through the folders of all segments of the container."""
        for segment in range(3):
            await storage.put(f"c1/m/{segment}/1", [b"x"])
        looked_at: list[str] = []

        class Noting(ArrowFiles):
            def get_file_info(self, asked: Any) -> Any:
                looked_at.append(asked.base_dir)
                return self._inner.get_file_info(asked)

        assert isinstance(storage, ArrowChunkStorage)
        monkeypatch.setattr(storage, "_files", Noting(storage._files))  # private: Arrow is behind it
        assert await names(storage, "c1/m/1/") == ["c1/m/1/1"]
        assert [path.partition("/tier2")[2] for path in looked_at] == ["/c1/m/1"]
        assert await names(storage, "c1/m/7/") == []

    async def test_what_crashes_left_is_removed_when_it_is_old(self, storage: ChunkStorage, tmp_path: Path) -> None:
        incoming = tmp_path / "with space" / "tier2" / ".incoming"
        for name, age_s in (("old", 4_000), ("young", 60)):
            (incoming / name).write_bytes(b"half")
            at_s = time.time() - age_s
            os.utime(incoming / name, (at_s, at_s))
        other = make_chunk_storage(f"arrow:file://{tmp_path}/with%20space/tier2")
        await other.start()
        assert [path.name for path in incoming.iterdir()] == ["young"]
        await other.close()

    async def test_what_another_store_removes_first_is_no_error(
        self, storage: ChunkStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stores that start together after a crash find the same old files, and one of them was refused."""

        class Racing(ArrowFiles):
            def delete_file(self, path: str) -> None:
                if path.endswith("/old"):
                    self._inner.delete_file(path)
                self._inner.delete_file(path)

        class Files:
            @staticmethod
            def from_uri(uri: str) -> tuple[Any, str]:
                files, root = FileSystem.from_uri(uri)
                return Racing(files), root

        old = tmp_path / "with space" / "tier2" / ".incoming" / "old"
        old.write_bytes(b"half")
        os.utime(old, (time.time() - 4_000,) * 2)
        monkeypatch.setattr(arrow_files, "FileSystem", Files)
        other = make_chunk_storage(f"arrow:file://{tmp_path}/with%20space/tier2")
        await other.start()
        assert not old.exists()
        await other.close()

    @pytest.mark.parametrize("uri", ["arrow:nope://host/folder", "arrow:file:///proc/cannot", "arrow:file:///a b"])
    async def test_what_arrow_cannot_use_is_refused_at_start(self, uri: str) -> None:
        storage = make_chunk_storage(uri)
        with pytest.raises(ConfigurationError, match="name a folder that Arrow can write to"):
            await storage.start()
        await storage.close()

    @pytest.mark.parametrize("name", ["../outside", "/absolute", "a//b", "a/./b", ""])
    async def test_names_cannot_leave_the_folder(self, storage: ChunkStorage, name: str) -> None:
        with pytest.raises(InvariantViolation):
            await storage.put(name, [b"x"])


@pytest.mark.skipif(HDFS_VARIABLE not in os.environ, reason=f"{HDFS_VARIABLE} names no HDFS (hdfs://host:port/folder)")
class TestArrowOnHdfs(ChunkStorageContract):
    @pytest.fixture
    async def storage(self) -> AsyncIterator[ChunkStorage]:
        storage = make_chunk_storage(f"{os.environ[HDFS_VARIABLE]}/{uuid.uuid4().hex}")
        await storage.start()
        yield storage
        await storage.close()


class TestMinio(ChunkStorageContract):
    @pytest.fixture
    async def storage(self, minio_server: MinioServer) -> AsyncIterator[ChunkStorage]:
        storage = MinioChunkStorage(settings_for(minio_server))
        await storage.start()
        yield storage
        await storage.close()

    async def test_starting_twice_finds_the_bucket(self, minio_server: MinioServer) -> None:
        settings = settings_for(minio_server)
        for _ in range(2):
            storage = MinioChunkStorage(settings)
            await storage.start()
            assert await names(storage, "") == []
            await storage.close()

    async def test_wrong_keys_are_refused_at_start(self, minio_server: MinioServer) -> None:
        settings = MinioSettings(minio_server.address, "nobody", "nothing-at-all", "bucket")
        storage = MinioChunkStorage(settings)
        with pytest.raises(ConfigurationError, match="AccessDenied"):
            await storage.start()
        await storage.close()

    async def test_an_unreachable_server_is_unavailable(self) -> None:
        settings = MinioSettings("127.0.0.1:1", "key", "secret-secret", "bucket", start_time_max_s=0.3)
        storage = MinioChunkStorage(settings)
        with pytest.raises(Unavailable):
            await storage.start()
        with pytest.raises(Unavailable):
            await storage.put("never", [b"stored"])
        await storage.close()


def settings_for(server: MinioServer) -> MinioSettings:
    bucket = f"test-{uuid.uuid4().hex}"
    return MinioSettings(server.address, server.access_key, server.secret_key, bucket, threads_max=8)


class TestFaultyWithoutFaults(ChunkStorageContract):
    @pytest.fixture
    async def storage(self) -> ChunkStorage:
        return FaultyChunkStorage(InMemoryChunkStorage(), random.Random(1), SystemClock())


class TestFaulty:
    async def test_a_stopped_store_does_nothing(self) -> None:
        inner = InMemoryChunkStorage()
        storage = FaultyChunkStorage(inner, random.Random(1), SystemClock())
        storage.stop()
        with pytest.raises(Unavailable):
            await storage.put("a", [b"1"])
        assert not inner.objects
        storage.resume()
        await storage.put("a", [b"1"])
        assert inner.objects == {"a": b"1"}

    async def test_unknown_puts_are_done_lost_or_late(self) -> None:
        inner = InMemoryChunkStorage()
        rates = FaultRates(unknown_done=0.3, unknown_lost=0.3, unknown_late=0.3)
        storage = FaultyChunkStorage(inner, random.Random(5), SystemClock(), rates)
        unknown = 0
        for number in range(200):
            try:
                await storage.put(f"{number:03d}", [b"x"])
            except UnknownOutcome:
                unknown += 1
        before = len(inner.objects)
        late = await storage.land_late_puts()
        assert 150 < unknown < 200
        assert late > 30
        assert len(inner.objects) == before + late < 200
