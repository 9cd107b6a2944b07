"""Executors need few packages, and Spark's discovery imports none of ours."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pravega_common.version import __version__
from pravega_spark.application import MODULES, make_application

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
COMMAND_LINE = ("pandas", "pydantic", "rich", "typer")
"""What of these the command line has, too: Typer brings pydantic along."""


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


@pytest.mark.parametrize("arguments", [["stream", "list"], ["stream", "create", "s/t"], ["--version"], ["cluster"]])
def test_a_command_that_asks_one_thing_imports_little(arguments: list[str]) -> None:
    """Arrow, NumPy and Spark take longer to import than the question to the controller takes."""
    loaded = loaded_by(f"from pravega_spark.application import make_application; make_application({arguments})")
    assert not loaded & {"numpy", "pandas", "pyarrow", "pyspark", "pydantic", "redis", "aiohttp"}


def test_the_command_line_needs_no_services() -> None:
    """With the extra ``cli`` alone all commands are there; the one that runs services says what it lacks."""
    blocked = "\n".join(f"sys.modules['{name}'] = None" for name in (*SERVICES_ONLY, "cryptography", "jwt"))
    blocked = "\n".join(line for line in blocked.splitlines() if not any(f"'{name}'" in line for name in COMMAND_LINE))
    loaded_by(f"import sys\n{blocked}\nfrom pravega_spark.application import make_application; make_application()")
    code = f"import sys\n{blocked}\nsys.argv[1:] = ['standalone']\nfrom pravega_spark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert re.fullmatch(
        r"pravega-spark: this command needs \w+; install it with: pip install 'pravega-spark\[services\]'\n",
        done.stderr,
    ), done.stderr


def test_the_application_has_every_command_it_lists() -> None:
    for name, module in MODULES.items():
        for arguments in ([name], []):
            made = make_application(arguments)
            known = {item.name or item.callback.__name__ for item in made.registered_commands if item.callback}
            known |= {item.name for item in made.registered_groups if item.name}
            assert name in known, f"{module} does not add {name}"


def test_version_and_help_in_their_short_forms() -> None:
    result = CliRunner().invoke(make_application(["--version"]), ["--version"])
    assert (result.exit_code, result.output) == (0, f"pravega-spark {__version__}\n")
    for arguments in (["-h"], ["stream", "-h"], ["stream", "create", "-h"]):
        result = CliRunner().invoke(make_application(arguments), arguments)
        assert result.exit_code == 0 and "Usage" in result.output


def test_shells_complete_commands() -> None:
    typed = {"_PRAVEGA_SPARK_COMPLETE": "complete_bash", "COMP_WORDS": "pravega-spark stream tr", "COMP_CWORD": "2"}
    result = CliRunner().invoke(make_application(), [], env=typed, prog_name="pravega-spark")
    assert result.output.split() == ["truncate", "transaction"], result.output
