"""Opens logs in files for tests, and reads them back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pravega_common.runtime.clock import Clock
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.files import Files
from segment_service.file_log.folder import FileLogFolder

plog_bytes = 64 * 1024


@asynccontextmanager
async def folder_at(
    root: Path,
    files: Files | None = None,
    *,
    plog_bytes: int = plog_bytes,
    reserve_bytes: int = 0,
    time_max_s: float = 20,
) -> AsyncIterator[FileLogFolder]:
    folder = FileLogFolder(
        root, plog_bytes=plog_bytes, reserve_bytes=reserve_bytes, files=files, call_time_max_s=time_max_s
    )
    await folder.start()
    try:
        yield folder
    finally:
        await folder.stop()


async def log_in(folder: FileLogFolder, clock: Clock | None = None) -> FileDataLog:
    log = FileDataLog(1, folder, clock)
    await log.initialize()
    return log


async def payloads_at(root: Path) -> list[bytes]:
    """What a new owner finds."""
    async with folder_at(root) as folder:
        log = await log_in(folder)
        found = [bytes(entry.payload) async for entry in log.read()]
        await log.close()
        return found
