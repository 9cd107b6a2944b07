"""Keeps the log files of the children within a size.

A child writes to the file that it was started with, and knows of no other: its content is copied aside, and the file
emptied. What is written between the last look at its end and that is lost from the log, a matter of microseconds;
the audit log of the controllers is a file of their own, and loses nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service

log_bytes_max: Final = 16 * 1024 * 1024
"""Size of a log file above which it is put aside."""
logs_kept: Final = 4
"""Older files of each log: ``NAME.log.1``, the newest, to ``NAME.log.4``."""
look_period_s: Final = 10.0
_copy_bytes: Final = 1024 * 1024


class LogRotation(Service):
    """Looks at the files every ten seconds, and in a thread puts aside those that grew too large."""

    def __init__(self, files: Sequence[Path], clock: Clock | None = None) -> None:
        super().__init__("log-rotation")
        self._files = tuple(files)
        self._clock = clock or SystemClock()

    async def on_start(self) -> None:
        self.spawn(self._run(), "run")

    async def _run(self) -> None:
        while True:
            for file in self._files:
                try:
                    if file.stat().st_size > log_bytes_max:
                        await asyncio.to_thread(rotate, file)
                except OSError as error:
                    self.log.warning("a log was not rotated", file=str(file), error=str(error))
            await self._clock.sleep(look_period_s)


def rotate(file: Path) -> None:
    """Move every older file one number on, copy the file to ``FILE.1``, and empty it.

    ``OSError`` if there is no room; the file and the older ones are as they were then.
    """
    unfinished = file.with_name(f"{file.name}.new")
    try:
        with file.open("rb+") as source, unfinished.open("wb") as target:
            while piece := source.read(_copy_bytes):
                target.write(piece)
            target.flush()
            for number in range(logs_kept - 1, 0, -1):
                older = _numbered(file, number)
                if older.exists():
                    os.replace(older, _numbered(file, number + 1))
            os.replace(unfinished, _numbered(file, 1))
            target.write(source.read())
            source.truncate(0)
    finally:
        unfinished.unlink(missing_ok=True)


def _numbered(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")
