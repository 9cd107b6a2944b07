"""Keeps evicted blocks on a local disk, in RocksDB (extra ``rocksdb``): the second level of the cache."""

from __future__ import annotations

import asyncio
import re
import shutil
from bisect import bisect_right, insort
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from pravega_common.errors import ConfigurationError
from pravega_common.services.base import Service
from segment_service.contracts.second_level_cache import SegmentKey

disk_bytes_max_default: Final = 8 * 1024 * 1024 * 1024
"""Bytes on disk when the configuration names none; the oldest blocks go first. RocksDB gives space back a little
later, so keep a quarter more free."""
block_kept_bytes_min: Final = 16 * 1024
"""Smaller blocks are not worth a write."""
queued_bytes_max: Final = 32 * 1024 * 1024
"""Bytes that wait to be written; above it, what is offered is dropped."""
threads_max: Final = 1
"""Threads that wait for the disk. One: calls of RocksDB never overlap, and closing comes after all of them."""
names_listed_max: Final = 3
_OWN_FILES: Final = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\..+)?|(MANIFEST|OPTIONS)-.+|\d+\.(log|sst|blob|dbtmp)|rocksdict-config\.json"
)
"""The names of what RocksDB makes, of which a process that was killed leaves some."""


@dataclass(frozen=True, slots=True)
class _Block:
    key: SegmentKey
    offset: int
    length: int
    number: int
    checksum: int
    """CRC32C of the bytes: the disk is not trusted, what fails is fetched from Tier 2."""

    @property
    def database_key(self) -> bytes:
        return self.number.to_bytes(8, "big")


class RocksDBSecondLevel(Service):
    """``SecondLevelCache`` in a folder of its own, which is emptied at start and end: a cache, not a store.

    What is where is known in memory; RocksDB holds blocks by number, without a write-ahead log, and is only touched on
    a thread of its own. A disk that fails ends nothing but the keeping.
    """

    def __init__(self, folder: Path, bytes_max: int = disk_bytes_max_default) -> None:
        super().__init__("cache-second-level")
        self._folder = folder
        self._bytes_max = bytes_max
        self.bytes_used = 0
        self.bytes_read = 0
        self.bytes_dropped = 0
        """Offered and not kept, since the disk was too slow."""
        self._thread = ThreadPoolExecutor(threads_max, thread_name_prefix="cache-second-level")
        self._database: Any = None
        self._blocks: dict[SegmentKey, list[tuple[int, int, _Block]]] = {}
        self._by_age: OrderedDict[int, _Block] = OrderedDict()
        self._numbers = 0
        self._queue: deque[tuple[SegmentKey, int, memoryview]] = deque()
        self._queued_bytes = 0
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def on_start(self) -> None:
        await self._on_thread(self._open)
        self.spawn(self._write_queue(), "write")

    async def on_stop(self) -> None:
        self._queue.clear()
        self._blocks.clear()
        self._by_age.clear()
        self.bytes_used = self._queued_bytes = 0
        await self._on_thread(self._close)
        self._thread.shutdown(wait=False)

    async def drained(self) -> None:
        """Wait until everything offered so far was written or given up."""
        await self._is_idle.wait()

    # --- SecondLevelCache --------------------------------------------------------------------------------------------

    def offer(self, key: SegmentKey, offset: int, data: memoryview) -> None:
        length = len(data)
        if not self.is_running or length < block_kept_bytes_min or self._holds(key, offset, length):
            return
        if self._queued_bytes + length > queued_bytes_max:
            self.bytes_dropped += length
            return
        self._queue.append((key, offset, data))
        self._queued_bytes += length
        self._has_work.set()
        self._is_idle.clear()

    def covered_to(self, key: SegmentKey, offset: int) -> int | None:
        block = self._find(key, offset)
        return None if block is None else block.offset + block.length

    async def read(self, key: SegmentKey, offset: int, length: int) -> bytes | None:
        block = self._find(key, offset)
        if block is None or offset + length > block.offset + block.length or not self.is_running:
            return None
        data: bytes | None = await self._on_thread(partial(self._get, block.database_key))
        if data is None or len(data) != block.length or crc32c(data) != block.checksum:
            if data is not None:
                self.log.warning("a block of the cache on disk is damaged", segment=key.segment_id, offset=block.offset)
            self._drop(block)
            return None
        self.bytes_read += length
        return data[offset - block.offset :][:length]

    def forget(self, key: SegmentKey) -> None:
        for _, _, block in list(self._blocks.get(key, ())):
            self._drop(block)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _write_queue(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                key, offset, data = self._queue.popleft()
                self._numbers += 1
                block = _Block(key, offset, len(data), self._numbers, crc32c(data))
                is_kept = await self._on_thread(partial(self._put, block.database_key, bytes(data)))
                self._queued_bytes -= len(data)
                if is_kept and not self._holds(key, offset, len(data)):
                    self._add(block)
                    while self.bytes_used > self._bytes_max:
                        self._drop(next(iter(self._by_age.values())))
            self._is_idle.set()

    def _add(self, block: _Block) -> None:
        insort(self._blocks.setdefault(block.key, []), (block.offset, block.number, block))
        self._by_age[block.number] = block
        self.bytes_used += block.length

    def _drop(self, block: _Block) -> None:
        if self._by_age.pop(block.number, None) is None:
            return
        self.bytes_used -= block.length
        blocks = self._blocks[block.key]
        blocks.remove((block.offset, block.number, block))
        if not blocks:
            del self._blocks[block.key]
        self._thread.submit(self._delete, block.database_key)

    def _find(self, key: SegmentKey, offset: int) -> _Block | None:
        blocks = self._blocks.get(key)
        if not blocks:
            return None
        position = bisect_right(blocks, offset, key=lambda item: item[0]) - 1
        if position < 0:
            return None
        block = blocks[position][2]
        return block if offset < block.offset + block.length else None

    def _holds(self, key: SegmentKey, offset: int, length: int) -> bool:
        block = self._find(key, offset)
        return block is not None and offset + length <= block.offset + block.length

    async def _on_thread(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- on the thread -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            from rocksdict import DBCompressionType, Options, Rdict, WriteOptions
        except ImportError as error:
            raise ConfigurationError(
                "the cache on disk needs RocksDB: install pravega-spark[rocksdb], or configure no cache on disk"
            ) from error
        self._empty_folder()
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())
        self._database = Rdict(str(self._folder), options)
        without_log = WriteOptions()
        without_log.disable_wal = True  # type: ignore[method-assign,assignment]  # the stub takes it for a method
        self._database.set_write_options(without_log)

    def _empty_folder(self) -> None:
        """``ConfigurationError`` for a folder with something else than a cache, which somebody may miss."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            others = sorted(entry.name for entry in self._folder.iterdir() if not _OWN_FILES.fullmatch(entry.name))
        except OSError as error:
            raise ConfigurationError(
                f"the cache's folder {self._folder} cannot be written ({error.strerror}): choose another (disk_folder)"
            ) from error
        if others:
            raise ConfigurationError(
                f"the cache's folder {self._folder} is emptied at each start, and has what is no cache "
                f"({', '.join(others[:names_listed_max])}): choose another (disk_folder)"
            )
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return  # It never had the folder, which may be of somebody else.
        try:
            database.close()
        except Exception as error:  # rocksdict raises bare Exception
            self.log.warning("the cache on disk does not close", error=repr(error))
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put(self, database_key: bytes, data: bytes) -> bool:
        try:
            self._database[database_key] = data
        except Exception as error:  # rocksdict raises bare Exception
            self.log.warning("the cache on disk does not keep a block", error=repr(error))
            return False
        return True

    def _get(self, database_key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._database.get(database_key)
        except Exception as error:  # rocksdict raises bare Exception
            self.log.warning("the cache on disk does not give a block", error=repr(error))
            return None
        return found

    def _delete(self, database_key: bytes) -> None:
        try:
            if self._database is not None:
                del self._database[database_key]
        except Exception as error:  # rocksdict raises bare Exception
            self.log.warning("the cache on disk does not drop a block", error=repr(error))
