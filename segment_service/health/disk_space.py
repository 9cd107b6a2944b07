"""Looks how much room the file systems have that a store itself writes to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from pravega_common.errors import Unavailable
from pravega_common.runtime.clock import Clock
from segment_service.storage.blocking import BlockingCalls

look_age_max_s: Final = 10.0
"""The age up to which figures are served without another look."""
look_time_max_s: Final = 2.0
"""How long a question waits for a look: a network's file system that hangs must not hang the page."""


@dataclass(frozen=True, slots=True)
class Space:
    """The size of a file system, and what of it the process may still fill."""

    bytes: int
    free: int


class DiskSpace:
    """The figures by use (``tier1``, ``tier2``, ``cache``), taken when they are asked for."""

    def __init__(self, folders: Mapping[str, Path], clock: Clock) -> None:
        self._folders = dict(folders)
        self._clock = clock
        self._calls = BlockingCalls("disk space", 1, look_time_max_s)
        self._looked_s: float | None = None
        self.known: dict[str, Space] = {}
        """As of the last look that ended."""

    async def look(self) -> None:
        """Bring the figures up to date; those of a look that does not end in time are not known."""
        now_s = self._clock.monotonic_s()
        if not self._folders or (self._looked_s is not None and now_s - self._looked_s < look_age_max_s):
            return
        try:
            self.known = await self._calls.run(self._spaces)
        except Unavailable as error:
            self.known = {}
            structlog.get_logger().warning("the room of the disks is not known", error=str(error))
        self._looked_s = self._clock.monotonic_s()

    def close(self) -> None:
        self._calls.close()

    def _spaces(self) -> dict[str, Space]:
        found = {}
        for use, folder in self._folders.items():
            try:
                state = os.statvfs(_nearest(folder))
            except OSError as error:
                structlog.get_logger().warning("the room of a disk is not known", folder=str(folder), error=str(error))
                continue
            found[use] = Space(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize)
        return found


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists already."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())
