"""Gives back the memory that the system keeps for Redis's append-only file.

Redis writes that file and reads it only when it starts. Every page of it that stays cached is memory that
other processes could use, and the next page is a fresh one: where memory is virtual, that costs several times as much
as copying the bytes into it. Pages that were given back are reused for the next bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service

round_s: Final = 0.1
given_back_bytes_min: Final = 1024 * 1024
"""Growth of a file before any of it is given back; for an idle Redis only its folder is listed."""

GiveBack = Callable[[Path, int, int], None]
"""Gives back the memory of ``(file, start, end)``. Raises ``OSError``, also when the file is gone."""


def give_back(file: Path, start: int, end: int) -> None:
    """Advises the kernel to drop cached pages. Bytes that are not synced stay; some systems take no advice."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class LogPageCache(Service):
    """A service that gives back the pages of a Redis's append-only files: one file (6.2) or several (7)."""

    def __init__(self, folder: Path, clock: Clock | None = None, give_back: GiveBack = give_back) -> None:
        super().__init__("log-page-cache")
        self._folder = folder
        self._clock = clock or SystemClock()
        self._give_back = give_back
        self._seen_bytes: dict[Path, int] = {}
        """Sizes at the last round: with ``appendfsync always`` all of it is synced by now."""
        self._done_bytes: dict[Path, int] = {}

    async def on_start(self) -> None:
        self.spawn(self._run(), "rounds")

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.to_thread(self.run_round)
                await self._clock.sleep(round_s)
        except OSError as error:
            # Only speed is lost.
            self.log.warning("the memory of Redis's files is not given back any more", error=repr(error))

    def run_round(self) -> None:
        """Gives back the bytes that were in the files one round ago."""
        sizes = self._sizes()
        for file, size in sizes.items():
            start, end = self._done_bytes.get(file, 0), min(self._seen_bytes.get(file, 0), size)
            if end < start:  # A new file has the name of an old one.
                start = 0
            if end - start >= given_back_bytes_min:
                try:
                    self._give_back(file, start, end)
                except FileNotFoundError:
                    continue
                start = end
            self._done_bytes[file] = start
        self._seen_bytes = sizes
        self._done_bytes = {file: done for file, done in self._done_bytes.items() if file in sizes}

    def _sizes(self) -> dict[Path, int]:
        """Lists the files with their sizes, without a rewrite's temporary ones: Redis gives those back itself."""
        sizes = {}
        for file in (*self._folder.glob("appendonly*"), *self._folder.glob("appendonlydir/appendonly*")):
            try:
                if file.is_file():
                    sizes[file] = file.stat().st_size
            except FileNotFoundError:
                continue
        return sizes
