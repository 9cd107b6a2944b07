"""Gives back the memory that the system keeps for Redis's append-only file.

Redis writes that file and reads it only when it starts. Every page of it that stays cached is taken from memory that
somebody else could use, and the next page is a fresh one: where memory is virtual, that costs several times as much as
copying the bytes into it. Pages given back are the next ones taken.
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
"""What a file must have grown by; an idle Redis costs nothing but a look at its folder."""

GiveBack = Callable[[Path, int, int], None]
"""``(file, start, end)``: nobody needs these bytes in memory. Raises ``OSError``, also when the file is gone."""


def give_back(file: Path, start: int, end: int) -> None:
    """Bytes that are not synced stay in memory. Does nothing on a system that takes no advice."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class LogPageCache(Service):
    """Looks after the append-only files in a Redis's folder, whether of one file (6.2) or several (7)."""

    def __init__(self, folder: Path, clock: Clock | None = None, give_back: GiveBack = give_back) -> None:
        super().__init__("log-page-cache")
        self._folder = folder
        self._clock = clock or SystemClock()
        self._give_back = give_back
        self._seen_bytes: dict[Path, int] = {}
        """Sizes of the round before: with ``appendfsync always`` that much is synced by now."""
        self._done_bytes: dict[Path, int] = {}

    async def on_start(self) -> None:
        self.spawn(self._run(), "rounds")

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.to_thread(self.run_round)
                await self._clock.sleep(round_s)
        except OSError as error:
            # It costs speed, nothing else.
            self.log.warning("the memory of Redis's files is not given back any more", error=repr(error))

    def run_round(self) -> None:
        """Give back what was in the files one round ago."""
        sizes = self._sizes()
        for file, size in sizes.items():
            start, end = self._done_bytes.get(file, 0), min(self._seen_bytes.get(file, 0), size)
            if end < start:  # A file of the same name began anew.
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
        """Temporary files of a rewrite are left alone: Redis gives them back itself."""
        sizes = {}
        for file in (*self._folder.glob("appendonly*"), *self._folder.glob("appendonlydir/appendonly*")):
            try:
                if file.is_file():
                    sizes[file] = file.stat().st_size
            except FileNotFoundError:
                continue
        return sizes
