"""Copies files into a stream, and a stream into files: exactly once by job id.

    spark-submit scripts/backfill.py load data/*.json scope/stream --job-id history --checkpoint hdfs:///jobs

The package must be installed on the driver, with the extra ``cli``, and on the executors, without it. All
arguments: ``scripts/backfill.py --help``.
"""

from __future__ import annotations

from pravega_spark.backfill.main import main

if __name__ == "__main__":
    main()
