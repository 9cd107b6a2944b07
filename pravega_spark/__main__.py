"""``python -m pravega_spark``: the command line."""

from pravega_spark.cli import main

main()
