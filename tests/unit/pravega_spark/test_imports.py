"""Executors need few packages, and Spark's discovery imports none of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVICES_ONLY = (
    "aiohttp",
    "crc32c",
    "minio",
    "pandas",
    "prometheus_client",
    "pydantic",
    "redis",
    "rich",
    "sortedcontainers",
    "structlog",
    "tenacity",
    "typer",
    "uvloop",
)


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "pravega_spark.datasource",
        "pravega_spark.gateway.service",
        "pravega_streams.event.block_writer",
        "pravega_streams.batch.range_reader",
    ],
)
def test_executors_need_no_services(module: str) -> None:
    blocked = "\n".join(f"sys.modules['{name}'] = None" for name in SERVICES_ONLY if name != "pandas")
    loaded_by(f"import sys\n{blocked}\nimport {module}")


def test_discovery_imports_pyspark_only() -> None:
    before, after = loaded_by("import pyspark.sql.datasource"), loaded_by("import pyspark_pravega")
    assert after - before == {"pyspark_pravega"}


def test_pipes_need_no_spark() -> None:
    """``event write`` and ``event read``: PySpark need not be installed, and takes a second to import where it is."""
    blocked = "import sys\nsys.modules['pyspark'] = None\nsys.modules['py4j'] = None"
    loaded_by(f"{blocked}\nimport pravega_spark.commands.event, pravega_spark.sink.direct_writer")


def test_wire_level_needs_no_spark() -> None:
    assert "pyspark" not in loaded_by("import pravega_streams.event.block_writer, pravega_streams.batch.range_reader")
