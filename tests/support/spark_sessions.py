"""Runs programs with a Spark session of their own, and Python environments with the launcher for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pravega_spark.spark_python import LAUNCHER
from tests.support.repository import ROOT

session_time_max_s: Final = 240.0
_FOUND: Final = "FOUND "


def make_programs(folder: Path) -> Path:
    """Makes the programs of an environment with the packages of the one that runs the tests, and the launcher."""
    venv.create(folder / "env", symlinks=True)
    packages = next((folder / "env").glob("lib/python*/site-packages"))
    shutil.rmtree(packages)
    packages.symlink_to(sysconfig.get_path("purelib"))
    shutil.copy(ROOT / "scripts" / LAUNCHER, folder / "env" / "bin")
    return folder / "env" / "bin"


def found_by_session(
    program: str, folder: Path, variables: Mapping[str, str], arguments: Sequence[str] = ()
) -> dict[str, Any]:
    """Runs a program in a folder; returns the JSON of the line ``FOUND {...}`` that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=session_time_max_s,
        check=False,
    )
    found = [line.removeprefix(_FOUND) for line in done.stdout.splitlines() if line.startswith(_FOUND)]
    assert found, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(found[0])
    return answer
