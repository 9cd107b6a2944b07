"""Checks the content of a wheel: every module, the files beside them, and the optional jar once it is built."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.tidy.test_tidy import PACKAGES, ROOT

JAR = "pravega_spark/jars/pravega-spark-shim-spark0.0.jar"
build_time_max_s = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel of a copy of the sources, with a file where the jar is."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "jars"))
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / JAR).parent.mkdir()
    (folder / JAR).write_bytes(b"")
    program = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=build_time_max_s, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with zipfile.ZipFile(folder / done.stdout.splitlines()[-1]) as archive:
        return set(archive.namelist())


def test_every_module(wheel: set[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert modules - wheel == set()


def test_the_jar(wheel: set[str]) -> None:
    assert JAR in wheel


def test_files_beside_the_modules(wheel: set[str]) -> None:
    beside = {
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".py", ".jar")
    }
    assert beside - wheel == set()
