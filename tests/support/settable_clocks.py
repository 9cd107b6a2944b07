"""Sets the clocks of single processes, by a library that they were started with."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from tests.support.preloaded_library import compiled

_ENTRY: Final = struct.Struct("=qq")
entries_max: Final = 8
"""As in ``set_clock.c``."""


class SettableClocks:
    """The clocks of the processes that were started with ``environment``; right until they are set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._table = folder / "clock-table"
        self.set_right()
        library = compiled(Path(__file__).with_name("set_clock.c"), folder)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_TABLE": str(self._table)}

    def set_ahead(self, *processes: int, seconds: int) -> None:
        """Set the clocks of these processes alone."""
        entries = b"".join(_ENTRY.pack(process, seconds) for process in processes)
        self._write(entries.ljust(entries_max * _ENTRY.size, b"\0"))

    def set_right(self) -> None:
        self._write(bytes(entries_max * _ENTRY.size))

    def _write(self, entries: bytes) -> None:
        # In place: the processes have mapped it.
        with self._table.open("r+b" if self._table.exists() else "wb") as table:
            table.write(entries)
