"""Looks at what a session prints in the environment of the tests: none of their extras brings a warning into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

session_time_max_s = 240.0
SESSION = """
from pyspark.sql import SparkSession
import pravega_spark.datasource, pravega_spark.gateway.service
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("ROWS", spark.range(2).count(), len(spark.range(3).toPandas()))
"""


@pytest.mark.slow
def test_a_session_has_no_warning_of_python(tmp_path: Path) -> None:
    """After a change of setup.cfg run scripts/setup: PySpark warns of pandas 3, for example."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-W", "default", "-W", "ignore::ResourceWarning", "-c", SESSION],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=session_time_max_s,
        check=False,
    )
    assert "ROWS 2 3" in done.stdout, done.stderr[-4000:]
    found = [line for line in done.stderr.splitlines() if "Warning:" in line]
    assert not found, found
