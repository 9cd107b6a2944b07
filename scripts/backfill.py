"""Files into a stream, and a stream into files: exactly once by job id.

    spark-submit scripts/backfill.py load data/ scope/stream --job-id history --checkpoint hdfs:///jobs

The package must be installed on the driver and the executors. All arguments: ``scripts/backfill.py --help``.
"""

from __future__ import annotations

import sys

from pravega_spark.backfill.main import main

if __name__ == "__main__":
    sys.exit(main(program="backfill.py"))
