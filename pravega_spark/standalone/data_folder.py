"""Opens the data folder of a standalone: checks its format version, locks it and lays it out."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from pravega_common.errors import ConfigurationError
from pravega_common.invariants import check
from pravega_common.services.private_files import private_mode, replace_file

FORMAT_VERSION: Final = 2
"""2 has no Redis at all, or several, which 0.1.0 must not take for an empty folder; every other folder has format 1."""
LAYOUT_BEFORE: Final = {"tier1": "redis", "redis_servers": 1}
"""The layout of folders that were made before they recorded it."""

KEPT: Final = ("lock", "logs", "format.new", "format.json.new", "backfill")
"""What may be in a new folder: the lock, the logs of a start that failed, a marker that was not finished, and what jobs
that load into another cluster remember."""
names_listed_max: Final = 3
left_over_time_max_s: Final = 10.0
"""How long a start waits for the end of what a killed standalone left behind."""
_look_again_s: Final = 0.1


@dataclass
class DataFolder:
    """The data folder. ``root`` holds ``format.json``, ``lock`` and a folder for each part (each Redis, conf, …)."""

    root: Path
    is_new: bool = False
    """Whether this start made it, and nothing was in it."""
    lock_descriptor: int = -1
    """The lock of an open folder, for children to inherit: while one of them is left the folder stays locked."""
    _lock: IO[str] | None = None

    def open(self, layout: dict[str, Any]) -> None:
        """Makes or checks the folder and locks it. ``layout`` must be the same at every start. A folder that is refused
        is left as it is."""
        try:
            self.root.mkdir(mode=private_mode, parents=True, exist_ok=True)
            self._check_content(layout)
            self.root.chmod(private_mode)  # an older version made it for all to read
            self._lock = (self.root / "lock").open("a+")
        except OSError as error:
            raise ConfigurationError(
                f"data folder {self.root} cannot be written ({error.strerror}); choose another with --data-dir"
            ) from error
        self._take_lock(self._lock)
        self.lock_descriptor = self._lock.fileno()
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        if not self._check_content(layout):  # again: another start may have made it meanwhile
            self._make_marker(layout)

    def _take_lock(self, lock: IO[str]) -> None:
        """``ConfigurationError`` if another standalone runs on the folder, or a child of one that was killed does not
        end: two Redis would write to the same files."""
        deadline_s = time.monotonic() + left_over_time_max_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                owner = self._owner()
                if _runs(owner):
                    raise ConfigurationError(
                        f"data folder {self.root} is in use by process {owner}; stop it, or choose another --data-dir"
                    ) from error
                if time.monotonic() > deadline_s:
                    raise ConfigurationError(
                        f"data folder {self.root} is in use by what process {owner} started before it was killed; end"
                        f" the processes that 'fuser {self.root / 'lock'}' names, or choose another --data-dir"
                    ) from error
            time.sleep(_look_again_s)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def undo(self) -> None:
        """Removes what a first start made, but for the logs, so that another start may choose another layout.

        Only where nobody can have been acknowledged anything: before a store served.
        """
        check(self.is_new, "undo of a data folder that was there before", folder=self.root)
        for entry in self.root.iterdir():
            if entry.name in KEPT:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(mode=private_mode, exist_ok=True)
        return path

    def _owner(self) -> str:
        try:
            return (self.root / "lock").read_text().strip() or "unknown"
        except OSError:
            return "unknown"

    @property
    def _marker(self) -> Path:
        return self.root / "format.json"

    def _make_marker(self, layout: dict[str, Any]) -> None:
        self.is_new = True
        is_old = all(layout.get(name, value) == value for name, value in LAYOUT_BEFORE.items())
        content = json.dumps({"format": 1 if is_old else FORMAT_VERSION, **layout}, indent=2)
        replace_file(self._marker, content.encode())  # durably: without it the data of a crashed machine is refused

    def _check_content(self, layout: dict[str, Any]) -> bool:
        """Whether the folder was made before, or is to be made. ``ConfigurationError`` if it is something else, of a
        newer version, or has another layout. Changes nothing."""
        marker = self._marker
        if not marker.exists():
            others = sorted(entry.name for entry in self.root.iterdir() if entry.name not in KEPT)
            if others:
                raise ConfigurationError(
                    f"data folder {self.root} is not empty and was not made by pravega-spark (it has "
                    f"{', '.join(others[:names_listed_max])}); choose another with --data-dir"
                )
            return False
        try:
            found = json.loads(marker.read_text())
            version = int(found["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{marker} is damaged ({error}); this is no data folder of pravega-spark"
            ) from error
        if version > FORMAT_VERSION:
            raise ConfigurationError(
                f"data folder {self.root} has format {version}, this version reads up to {FORMAT_VERSION};"
                " upgrade pravega-spark"
            )
        for name, value in layout.items():
            made_with = found.get(name, LAYOUT_BEFORE.get(name))
            if made_with != value:
                raise ConfigurationError(
                    f"data folder {self.root} was made with {name} {made_with}, not {value}:"
                    " start with the same value, or choose another --data-dir"
                )
        return True


def _runs(owner: str) -> bool:
    """Whether the process that wrote its id into the lock is there; yes for what is no id."""
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
