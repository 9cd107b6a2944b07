"""Owns container 1's log in local files, in a process that writes until it is killed.

``python -m tests.support.file_log_writer FOLDER WRITER``: one line on standard output for each sync of a plog file
(``synced NAME BYTES``: as far as entries were written) and, later, for each acknowledged frame (``acked NUMBER``). On
its way it truncates.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from pravega_common.runtime.failpoints import arm_from_environment
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.files import Files
from segment_service.file_log.folder import FileLogFolder
from tests.support.log_history import numbered_frame

frame_bytes = 20_000
plog_bytes = 1_500_000
frames_in_flight = 4
truncate_every = 200
kept_frames = 100


def say(line: str) -> None:
    """In one write, so that a kill leaves whole lines."""
    os.write(1, f"{line}\n".encode())


class TellingFiles(Files):
    """Real files that say how far each plog file was synced."""

    def __init__(self) -> None:
        self._written: dict[int, int] = {}
        self._names: dict[int, Path] = {}

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self._written[descriptor] = 0
        self._names[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        self._written.pop(descriptor, None)
        super().close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        for descriptor, path in self._names.items():
            if path == old and descriptor in self._written:
                self._names[descriptor] = new
                say(f"synced {new.name} {self._written[descriptor]}")

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        written = super().write(descriptor, buffers, offset)
        if descriptor in self._written:
            self._written[descriptor] = offset + written
        return written

    def sync(self, descriptor: int) -> None:
        written = self._written.get(descriptor)
        super().sync(descriptor)
        if written is not None:
            say(f"synced {self._names[descriptor].name} {written}")


async def main(root: Path, writer: int) -> None:
    folder = FileLogFolder(root, plog_bytes=plog_bytes, reserve_bytes=0, files=TellingFiles())
    await folder.start()
    log = FileDataLog(1, folder)
    await log.initialize()
    say("begun")
    waiting: deque[asyncio.Future[LogAddress]] = deque()
    acked: deque[LogAddress] = deque(maxlen=kept_frames)
    for number in range(1_000_000):
        waiting.append(log.append([numbered_frame(writer, number, frame_bytes)]))
        if len(waiting) == frames_in_flight:
            acked.append(await waiting.popleft())
            say(f"acked {number - frames_in_flight + 1}")
        if number % truncate_every == truncate_every - 1:
            say(f"truncating {number - frames_in_flight + 1 - len(acked) + 1}")
            await log.truncate(acked[0])


if __name__ == "__main__":
    arm_from_environment()
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
