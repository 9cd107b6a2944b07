"""The command line: ``pravega-spark``."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Entry point; needs the extra ``services`` (Spark executors install the package without it)."""
    missing = [name for name in ("typer", "rich", "structlog") if find_spec(name) is None]
    if missing:
        sys.exit(
            f"pravega-spark: the command line needs {', '.join(missing)};"
            " install them with: pip install 'pravega-spark[services]'"
        )
    from pravega_common.errors import PravegaError
    from pravega_spark.application import application

    try:
        application()
    except PravegaError as error:
        sys.exit(f"pravega-spark: {error}")
