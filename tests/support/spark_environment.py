"""Gives Spark's own programs an environment without the choices of the tests' Spark and Python."""

from __future__ import annotations

import os
from typing import Final

JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The variable of options for the JVMs of drivers; ``scripts/test`` sets it, so that they start quickly."""


def environment_without_spark(*prefixes: str) -> dict[str, str]:
    """The environment of this process, without variables of Spark and PySpark but for the options of JVMs, and without
    those that begin with ``prefixes``."""
    left_out = ("SPARK_", "PYSPARK_", *prefixes)
    return {name: value for name, value in os.environ.items() if name == JVM_OPTIONS or not name.startswith(left_out)}
