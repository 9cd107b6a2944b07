"""Checks that ``doctor --spark`` looks at every executor, and names missing parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.driver_process import REPOSITORY

command_time_max_s = 240


def diagnosis(controller: str, master: str, folder: Path = REPOSITORY, **environment: str | None) -> dict[str, Any]:
    """``environment``: changes of this process's; None unsets a variable."""
    variables = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, "-m", "pravega_spark", "doctor", "--json", "--spark", "--master", master]
    done = subprocess.run(
        [*command, "--controller", controller],
        cwd=folder,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=command_time_max_s,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    return found


def checks(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [item for item in found["checks"] if item["check"].startswith(name)]


@pytest.mark.slow
def test_every_executor_is_asked(services: StandaloneProcess) -> None:
    found = diagnosis(services.controller_uri, "local-cluster[2,1,1024]")
    assert found["ok"], found
    (together,) = checks(found, "executors")
    assert together["detail"] == "2 of 2 answered"
    each = checks(found, "executor ")
    assert len(each) == 2
    assert all(item["detail"].startswith("20 events read by Python") for item in each)


def python_without(folder: Path, name: str) -> Path:
    """A Python of this name that lacks the package."""
    stub = folder / "stub" / "pravega_spark"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'pravega_spark'\")\n")
    python = folder / name
    python.write_text(f'#!/bin/sh\nPYTHONPATH={stub.parent}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.slow
def test_executors_without_the_package_are_named(services: StandaloneProcess, tmp_path: Path) -> None:
    python = python_without(tmp_path, "python-without")
    found = diagnosis(services.controller_uri, "local[2]", tmp_path, PYSPARK_PYTHON=str(python))
    (together,) = checks(found, "executors")
    assert together["ok"] is False
    assert "No module named" in together["detail"]
    assert "install pravega-spark in the Python of the executors" in together["remedy"]


@pytest.mark.slow
def test_the_python_of_jobs_is_tested_and_not_that_of_the_command(services: StandaloneProcess, tmp_path: Path) -> None:
    """Without PYSPARK_PYTHON Spark takes python3 of the path, which need not have the package."""
    python = python_without(tmp_path, "python3")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    found = diagnosis(services.controller_uri, "local[2]", tmp_path, PYSPARK_PYTHON=None, PATH=path)
    (together,) = checks(found, "executors")
    assert together["ok"] is False
    assert f"export PYSPARK_PYTHON={sys.executable}" in together["remedy"]
