"""Builds a wheel of a copy of the sources, and environments into which it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT
from tests.tidy.test_tidy import PACKAGES

JAR: Final = "pravega_spark/jars/pravega-spark-shim-spark0.0.jar"
"""An empty file where a build of the jar would be."""
_BESIDE: Final = ("conf", "examples", "scripts", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
build_time_max_s: Final = 120
install_time_max_s: Final = 120


def build_wheel(folder: Path, jars: Path | None = None) -> Path:
    """The wheel of a copy of the sources in ``folder``; ``jars`` are taken along, by default one empty file."""
    for name in (*PACKAGES, *_BESIDE):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "jars"))
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / JAR).parent.mkdir()
    if jars is None:
        (folder / JAR).write_bytes(b"")
    else:
        shutil.copytree(jars, (folder / JAR).parent, dirs_exist_ok=True)
    program = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=build_time_max_s, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.splitlines()[-1]


class WheelEnvironment:
    """A virtual environment with the wheel; everything else comes from the environment that runs the tests.

    The sources are not on its path: its modules are those of the wheel.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        site_packages = next(folder.glob("lib/python*/site-packages"))
        # A line of a .pth file adds the folder only, not the .pth files in it, one of which would add the sources.
        (site_packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
        ]
        done = subprocess.run(
            [*pip, "--force-reinstall", str(wheel)],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=install_time_max_s,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a process: the programs of this folder first, none of the tests' own paths."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        path = os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")])
        return {**kept, "PATH": path, "VIRTUAL_ENV": str(self.folder), "PYTHONSAFEPATH": "1", **(more or {})}

    def run(self, *command: str, cwd: Path, timeout_s: float, more: Mapping[str, str] | None = None) -> str:
        """The output of a program that must succeed."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environment(more),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout
