"""Reads logs in local files, without the lock of their folder, while a store may be writing them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.file_log.container_files import ContainerFiles
from segment_service.file_log.files import ReadOnlyFiles
from segment_service.file_log.folder import container_folder
from segment_service.file_log.found_log import read_found
from segment_service.maintenance.log_reading import LogChanged
from segment_service.storage.blocking import BlockingCalls

call_time_max_s: Final = 60.0
"""Time that finding the end of one log, or reading 4 MiB of it, may take."""


class FileLogSource:
    """``LogSource`` over a folder of logs. Takes no lock and no epoch, and writes nothing.

    Entries count as soon as they are whole in their file, which may be before the store's sync: what a crash takes of
    them was never acknowledged.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        calls = BlockingCalls("reading of logs in files", 1, call_time_max_s)
        files = ContainerFiles(container_folder(self._root, container_id), container_id, 0, ReadOnlyFiles())
        begins: LogAddress | None = None
        try:
            begins = await calls.run(files.begins_at)
            found = await calls.run(files.look)
            if found is not None:
                begins = found.truncated_at
                async for entry in read_found(found, files, calls.run):
                    yield entry
        except DataCorruption as error:
            if await calls.run(files.begins_at) == begins:
                raise
            raise LogChanged(f"container {container_id}: the log was truncated while it was read") from error
        finally:
            calls.close()
