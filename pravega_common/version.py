"""Holds the version of this project: the only place where it is written.

Imports nothing, since building a package reads it.
"""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
