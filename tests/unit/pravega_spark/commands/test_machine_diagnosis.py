"""The checks of this machine take what the package supports, and need no more than that."""

from __future__ import annotations

import configparser
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from pravega_spark.commands import machine_diagnosis
from pravega_spark.commands.findings import Finding
from pravega_spark.commands.machine_diagnosis import installed, pyspark_versions

SETUP = Path(__file__).resolve().parents[4] / "setup.cfg"


def found(name: str) -> Finding:
    return next(finding for finding in installed() if finding.name == name)


@pytest.mark.parametrize(
    ("installed_version", "is_ok"),
    [("4.0.1", True), ("4.1.1", True), ("4.3.0.dev2", True), ("3.5.7", False), ("4.4.0", False), ("5.0.0", False)],
)
def test_every_supported_spark_is_well(installed_version: str, is_ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_diagnosis, "version", lambda name: installed_version if name == "pyspark" else "99.0")
    assert found("pyspark").is_ok is is_ok


def test_a_machine_without_spark_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of the services alone, and their image."""

    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine_diagnosis, "version", version)
    monkeypatch.setattr(machine_diagnosis, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert [found(name).is_ok for name in ("pyspark", "java", "pravega-spark")] == [None, None, False]


def test_the_versions_are_those_of_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(SETUP)
    first, last = pyspark_versions
    wanted = f"pyspark>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"
    assert wanted in setup["options.extras_require"]["spark"]
