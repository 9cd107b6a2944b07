"""Imports in Spark's Python daemons what their workers need, since a drill starts many workers.

Spark puts zip files of itself before everything else on that path. Modules in them are compiled again by every process,
and their directories are read again by every task. The same modules are installed, so the zip files go.
"""

import sys
from importlib import import_module

if "pyspark.daemon" in sys.orig_argv:
    sys.path = [entry for entry in sys.path if not entry.endswith(".zip")]
    needed = ["pravega_spark.datasource", "pravega_spark.gateway.service", sys.orig_argv[-1]]
    if sys.orig_argv[-1] == "pyspark.worker":
        needed += ["pandas", "pyarrow.pandas_compat"]
    for name in needed:
        import_module(name)
