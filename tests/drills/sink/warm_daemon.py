"""PySpark's worker daemon with the connector already imported: a drill starts hundreds of workers."""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

for _name in ("pandas", "pyarrow", "pravega_spark.datasource", "pravega_spark.service_gateway"):
    import_module(_name)

if __name__ == "__main__":
    manager()
