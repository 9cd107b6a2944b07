"""Ends a program that lacks a package of the command line; imports only the standard library."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final, NoReturn

OURS: Final = ("pravega_", "pyspark_pravega", "segment_service", "controller_service")
"""Beginnings of the names of this project's packages: one that is missing is a defect."""


def exit_without(program: str, *packages: str) -> None:
    """Exits with what to install unless all packages are there (Spark executors lack the extra ``cli``)."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        sys.exit(
            f"{program}: the command line needs {', '.join(missing)};"
            " install them with: pip install 'pravega-spark[cli]'"
        )


def exit_lacking(program: str, error: ModuleNotFoundError) -> NoReturn:
    """Exits with what to install for a command that needs more than the others: a service on this machine."""
    name = (error.name or "").partition(".")[0]
    if not name or name.startswith(OURS):
        raise error
    sys.exit(f"{program}: this command needs {name}; install it with: pip install 'pravega-spark[services]'")
