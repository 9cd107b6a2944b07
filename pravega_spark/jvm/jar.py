"""Finds the optional jar, which adds to the connector what no Python source can do (``jvm-shim/README.md``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

CATALOG_CLASS: Final = "pravegaspark.PravegaCatalog"
"""For ``spark.sql.catalog.NAME``."""
_JARS: Final = Path(__file__).parents[1] / "jars"
_NAME: Final = "pravega-spark-shim-spark"


def jar_path() -> Path:
    """The jar in this installation for the PySpark that is installed, for ``spark.jars``.

    ``ConfigurationError`` when it is missing: it is built for one minor version of Spark, and a wheel carries those
    that were built before it was.
    """
    from pravega_spark.spark_version import spark_minor

    minor = ".".join(map(str, spark_minor()))
    jar = _JARS / f"{_NAME}{minor}.jar"
    if jar.is_file():
        return jar
    there = ", ".join(sorted(path.stem.removeprefix(_NAME) for path in _JARS.glob(f"{_NAME}*.jar"))) or "no Spark"
    raise ConfigurationError(
        f"no pravega-spark-shim jar for Spark {minor} in '{_JARS}' (there is one for {there}): install a wheel that has"
        " it, or run jvm-shim/build in the source tree with a Python that has this PySpark (it needs a JDK)"
    )
