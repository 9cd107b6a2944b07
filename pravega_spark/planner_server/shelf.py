"""Lays modules aside that a planner has not imported yet, and gives them out when it imports them.

A planner of a server must see what a new process sees. A new one has imported PySpark's program, and nothing more, when
Spark puts the files of a job on its path; a package among these hides the installed one. So what was imported ahead is
given out only if a search along the path of that moment finds the very same files.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Shelf(MetaPathFinder):
    """Modules by name; the first import of one brings back all of them, or none if one is found elsewhere.

    Modules of packages that stay imported come back one by one.
    """

    def __init__(self, modules: Mapping[str, ModuleType], loaded: frozenset[str]) -> None:
        """``loaded``: modules that stay imported; those below them are found by their packages, not along the path."""
        self._modules = dict(modules)
        self._loaded = loaded
        # Compiled modules add some to sys.modules that come from no file.
        found = (name for name, module in modules.items() if module.__spec__ is not None)
        self._top = [name for name in found if "." not in name and name not in loaded]

    def set_up(self) -> None:
        for name in self._modules:
            del sys.modules[name]
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        if fullname.partition(".")[0] in self._loaded:  # Its package finds it, and no folder of the path can hide it.
            return ModuleSpec(fullname, _Given(self._modules.pop(fullname)))
        sys.meta_path.remove(self)
        if not all(map(self._is_found, self._top)):
            return None
        for name, module in self._modules.items():
            if name != fullname:  # That one is put there by the import, which would load it once more otherwise.
                sys.modules.setdefault(name, module)
        return ModuleSpec(fullname, _Given(self._modules[fullname]))

    def _is_found(self, name: str) -> bool:
        """Whether an import would load the same file as the one that was imported ahead."""
        known = self._modules[name].__spec__
        for finder in sys.meta_path:
            found = finder.find_spec(name, None)
            if found is not None:
                return known is not None and _place(found) == _place(known)
        return False


def _place(spec: ModuleSpec) -> tuple[str | None, list[str]]:
    """The file of a module, or the folders of a package without one."""
    return spec.origin, list(spec.submodule_search_locations or ())


class _Given(Loader):
    """Gives the module that is there already, with its own spec."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
