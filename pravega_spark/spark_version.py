"""Tells what the PySpark that runs here can do, and refuses what it cannot by the version that can."""

from __future__ import annotations

import re
from typing import Final

import pyspark

from pravega_common.errors import UnsupportedOperation

Minor = tuple[int, int]

PUSHED_FILTERS: Final[Minor] = (4, 1)
ARROW_STREAM_SINK: Final[Minor] = (4, 1)
ADMISSION_CONTROL: Final[Minor] = (4, 2)
"""Before it Spark does not tell a Python source where a micro-batch starts, nor ask it for less than everything."""


def spark_minor(version: str | None = None) -> Minor:
    """The minor version of PySpark, by default of the one that is installed: ``4.1.4`` gives ``(4, 1)``."""
    text = pyspark.__version__ if version is None else version
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise UnsupportedOperation(f"PySpark calls its version '{text}'; 4.0 to 4.3 are served")
    return int(found[1]), int(found[2])


def has(feature: Minor) -> bool:
    return spark_minor() >= feature


def refuse(what: str, since: Minor, remedy: str) -> UnsupportedOperation:
    """The error for something that this Spark lacks. ``remedy``: what to do instead."""
    return UnsupportedOperation(f"{what} needs Spark {since[0]}.{since[1]}, this is {pyspark.__version__}; {remedy}")
