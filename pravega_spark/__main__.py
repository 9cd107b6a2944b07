"""Runs the command line as ``python -m pravega_spark``."""

from pravega_spark.cli import main

main()
