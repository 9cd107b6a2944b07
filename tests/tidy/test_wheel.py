"""Checks the content of a wheel: every module, the files beside them, settings, and the jar once it is built."""

from __future__ import annotations

import zipfile

import pytest

from pravega_spark.shipped_files import shipped_names
from pravega_spark.spark_python import LAUNCHER
from tests.support.wheel import JAR, build_wheel
from tests.tidy.test_tidy import PACKAGES, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel of a copy of the sources, with a file where the jar is."""
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as archive:
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


def test_programs_beside_the_python_of_an_environment(wheel: set[str]) -> None:
    assert LAUNCHER in {name.partition(".data/scripts/")[2] for name in wheel}


def test_settings_and_programs(wheel: set[str]) -> None:
    shared = {name.partition("/share/pravega-spark/")[2] for name in wheel if ".data/data/share/" in name}
    assert {"conf/segment-store.toml", "conf/controller.toml", "conf/redis.conf", "scripts/backfill.py"} <= shared
    examples = (path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert {str(path.relative_to(ROOT)) for path in examples} - shared == set()
    assert set(shipped_names()) - shared == set()
