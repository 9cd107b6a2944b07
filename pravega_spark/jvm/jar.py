"""Finds the optional jar, which adds to the connector what no Python source can do (``jvm-shim/README.md``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

CATALOG_CLASS: Final = "pravegaspark.PravegaCatalog"
"""For ``spark.sql.catalog.NAME``."""
_JARS: Final = Path(__file__).parents[1] / "jars"


def jar_path() -> Path:
    """The jar in this installation, for ``spark.jars``; its name ends with the Spark version it was built for.

    ``ConfigurationError`` when it is missing: wheels carry it, a source tree has it once it is built.
    """
    jars = sorted(_JARS.glob("pravega-spark-shim-*.jar"))
    if not jars:
        raise ConfigurationError(
            f"no pravega-spark-shim jar in '{_JARS}': install the package from its wheel, or run jvm-shim/build in the "
            "source tree (it needs a JDK)"
        )
    return jars[-1]
