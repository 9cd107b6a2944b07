"""Ends a program that lacks a package of the command line; imports only the standard library."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def exit_without(program: str, *packages: str) -> None:
    """Exits with what to install unless all packages are there (Spark executors lack the extra ``services``)."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        sys.exit(
            f"{program}: the command line needs {', '.join(missing)};"
            " install them with: pip install 'pravega-spark[services]'"
        )
