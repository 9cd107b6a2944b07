"""Notices that the code of imported modules has changed on disk, or that an import would find another file.

Costs one look at each file of a module and each folder of the path, and the names of a folder that has changed, as an
import does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Final, NamedTuple

ALWAYS_IMPORTED: Final = frozenset({"sitecustomize", "usercustomize"})
clock_step_ns: Final = 20_000_000
"""A file's time of change is behind the clock by that at most: the kernel takes it from its last tick."""


class _State(NamedTuple):
    device: int
    inode: int
    size: int
    changed_ns: int


def _state(path: str) -> _State | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _State(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def _file_of(module: ModuleType) -> str | None:
    """The file that a module came from, or the archive that has it; ``None`` for what is in the interpreter."""
    path = getattr(module, "__file__", None)
    while path and not os.path.exists(path):
        path = os.path.dirname(path) if os.path.dirname(path) != path else None
    return path or None


class CodeStamp:
    """The files of modules and the folders of a path, as they were when the modules had been imported."""

    def __init__(self, modules: Mapping[str, ModuleType], path: Iterable[str], began_ns: int) -> None:
        """``began_ns``: when the first of the modules was imported."""
        files = {file for module in list(modules.values()) if (file := _file_of(module)) is not None}
        self._files = {file: _state(file) for file in files}
        self._names = {name.partition(".")[0] for name in modules} | ALWAYS_IMPORTED
        self._path = {folder: _state(folder) for folder in path}
        self._found = {folder: self._relevant(folder) for folder in self._path}
        # A folder of a module's name is no package until it has this file.
        folders = [(folder, name) for folder, names in self._found.items() for name in names if "." not in name]
        packages = (os.path.join(folder, name, "__init__.py") for folder, name in folders)
        self._files.update({file: _state(file) for file in packages})
        states = [state for state in self._files.values() if state is not None]
        self._torn = any(state.changed_ns >= began_ns - clock_step_ns for state in states)

    def changed(self) -> bool:
        """Whether a new process might import other code, or a file changed while it was imported."""
        if self._torn or any(_state(file) != state for file, state in self._files.items()):
            return True
        return any(self._has_other_names(folder, state) for folder, state in self._path.items())

    def _has_other_names(self, folder: str, state: _State | None) -> bool:
        if _state(folder) == state:
            return False
        return not os.path.isdir(folder) or self._relevant(folder) != self._found[folder]

    def _relevant(self, folder: str) -> dict[str, _State | None]:
        """Names in a folder that an import of one of the modules could find, and files that add to the path."""
        try:
            names = os.listdir(folder)
        except OSError:
            return {}
        found = {name: None for name in names if name.partition(".")[0] in self._names}
        return {**found, **{name: _state(os.path.join(folder, name)) for name in names if name.endswith(".pth")}}


def path_now() -> list[str]:
    """The path of imports; an empty entry names the working folder."""
    return [entry or os.getcwd() for entry in sys.path]
