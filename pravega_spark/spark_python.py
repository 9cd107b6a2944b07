"""Finds the program that Spark is to start as Python: that of this environment, in its quickest form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

LAUNCHER: Final = "pravega-spark-python"
"""Starts the Python beside it without the zips that Spark puts in front: ``scripts/pravega-spark-python``."""


def spark_python() -> str:
    """A value for ``PYSPARK_PYTHON``: the launcher where the package was installed with it, else this interpreter."""
    launcher = Path(sys.executable).with_name(LAUNCHER)
    return str(launcher) if launcher.is_file() else sys.executable
