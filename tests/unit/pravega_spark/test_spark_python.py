"""Starts the launcher of Spark's Python on folders that look like installations of Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pravega_spark.planner_server.server import PLANNER_ARGUMENTS
from pravega_spark.spark_python import LAUNCHER, spark_python
from tests.support.repository import ROOT

SWITCH: Final = "PRAVEGA_PLANNER_SERVER"
CLIENT: Final = "pravega_spark/planner_server/client.py"
PY4J: Final = "py4j-0.10.9.9"
launch_time_max_s: Final = 60.0


def made(path: Path) -> str:
    """An empty file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def zips(home: Path) -> list[str]:
    """What Spark puts first on PYTHONPATH."""
    found = [home / "python" / "lib" / name for name in ("pyspark.zip", f"{PY4J}-src.zip")]
    return [*map(made, found), made(home / "jars" / "spark-core_2.13-4.3.0.jar")]


class Environment:
    """A virtual environment whose Python prints its PYTHONPATH and arguments, one a line."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "lib" / "python3.11" / "site-packages"
        self.launcher = folder / "bin" / LAUNCHER
        self.launcher.parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / LAUNCHER, self.launcher)
        python = self.launcher.with_name("python")
        python.write_text('#!/bin/sh\nprintf "%s\\n" "${PYTHONPATH-none}" "$@"\n')
        python.chmod(0o755)

    def install_spark(self) -> list[str]:
        """As ``pip install pyspark`` does; returns the entries that Spark makes of it."""
        made(self.packages / "pyspark" / "__init__.py")
        made(self.packages / "py4j" / "__init__.py")
        made(self.packages / f"{PY4J}.dist-info" / "METADATA")
        return zips(self.packages / "pyspark")

    def path_from(self, *entries: str) -> list[str]:
        """The PYTHONPATH that the launcher leaves of these entries."""
        variables = {**os.environ, "PYTHONPATH": ":".join(entries)}
        done = subprocess.run(
            [self.launcher, "-m", "pyspark.daemon", "two words"],
            env=variables,
            capture_output=True,
            text=True,
            timeout=launch_time_max_s,
            check=True,
        )
        path, *arguments = done.stdout.splitlines()
        assert arguments == ["-m", "pyspark.daemon", "two words"]
        return path.split(":")

    def started(self, *arguments: str, **variables: str) -> list[str]:
        """What the Python of the environment is started with."""
        done = subprocess.run(
            [self.launcher, *arguments],
            env={**{name: value for name, value in os.environ.items() if name != SWITCH}, **variables},
            capture_output=True,
            text=True,
            timeout=launch_time_max_s,
            check=True,
        )
        return done.stdout.splitlines()[1:]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "an env")


def test_the_zips_of_the_installed_spark_give_way(environment: Environment) -> None:
    assert environment.path_from(*environment.install_spark(), "/jobs", "/more") == ["/jobs", "/more"]


def test_nothing_is_left_of_a_path_of_zips_alone(environment: Environment) -> None:
    """An empty PYTHONPATH would name the working directory."""
    assert environment.path_from(*environment.install_spark()) == ["none"]


def test_spark_s_distribution_has_its_package_beside_the_zip(environment: Environment, tmp_path: Path) -> None:
    spark, py4j, core = zips(tmp_path / "spark")
    made(tmp_path / "spark" / "python" / "pyspark" / "__init__.py")
    assert environment.path_from(spark, py4j, core, "/jobs") == [str(tmp_path / "spark" / "python"), py4j, "/jobs"]


def test_a_spark_that_is_nowhere_unpacked_stays(environment: Environment, tmp_path: Path) -> None:
    """The PySpark of the environment is another one."""
    environment.install_spark()
    given = [*zips(tmp_path / "other"), "/jobs"]
    assert environment.path_from(*given) == given


def test_another_version_of_py4j_stays(environment: Environment) -> None:
    spark, py4j, _ = environment.install_spark()
    (environment.packages / f"{PY4J}.dist-info").rename(environment.packages / "py4j-0.10.9.7.dist-info")
    assert environment.path_from(spark, py4j) == [py4j]


@pytest.mark.parametrize("name", ["pyspark/__init__.py", "py4j/__init__.py"])
def test_another_package_behind_the_zip_stays_hidden(environment: Environment, tmp_path: Path, name: str) -> None:
    made(tmp_path / "mine" / name)
    given = [*environment.install_spark(), str(tmp_path / "mine")]
    assert environment.path_from(*given) == given


def test_another_zip_behind_the_zip_stays_hidden(environment: Environment, tmp_path: Path) -> None:
    given = [*environment.install_spark(), *zips(tmp_path / "other")]
    assert environment.path_from(*given) == given
    made(tmp_path / "other" / "python" / "pyspark" / "__init__.py")
    assert environment.path_from(*given) == given


@pytest.mark.parametrize("given", [["/jobs", "", "/more"], [""], ["/jobs/pyspark.zip"]])
def test_a_path_without_spark_s_zips_stays(environment: Environment, given: list[str]) -> None:
    environment.install_spark()
    assert environment.path_from(*given) == given


def test_python3_is_taken_where_there_is_no_python(environment: Environment) -> None:
    environment.launcher.with_name("python").rename(environment.launcher.with_name("python3"))
    assert environment.path_from("/jobs") == ["/jobs"]


def test_the_launcher_is_chosen_where_it_is_installed(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(environment.launcher.with_name("python")))
    assert spark_python() == str(environment.launcher)
    environment.launcher.unlink()
    assert spark_python() == sys.executable


@pytest.mark.skipif(sys.platform != "linux", reason="planners are started without a server elsewhere")
def test_a_planner_begins_with_the_client_of_its_server(environment: Environment, tmp_path: Path) -> None:
    assert environment.started(*PLANNER_ARGUMENTS) == [*PLANNER_ARGUMENTS], "there is no package"
    made(tmp_path / "source" / CLIENT)
    environment.packages.mkdir(parents=True)
    (environment.packages / "__editable__.pravega_spark-1.0.pth").write_text(str(tmp_path / "source"))
    python = str(environment.launcher.with_name("python"))
    *_, folder, program, module, name = environment.started(*PLANNER_ARGUMENTS)
    assert (folder, program, module, name) == (str((tmp_path / "source" / CLIENT).parent), python, *PLANNER_ARGUMENTS)
    made(environment.packages / CLIENT)
    isolated, site, *_, folder, _, _, _ = environment.started(*PLANNER_ARGUMENTS, **{SWITCH: "on"})
    assert (isolated, site) == ("-I", "-S")
    assert (environment.packages / CLIENT).parent.samefile(folder)


@pytest.mark.parametrize("switch", ["off", "", "no"])
def test_a_planner_begins_as_python_where_servers_are_off(environment: Environment, switch: str) -> None:
    made(environment.packages / CLIENT)
    assert environment.started(*PLANNER_ARGUMENTS, **{SWITCH: switch}) == [*PLANNER_ARGUMENTS]


@pytest.mark.parametrize(
    "given", [["-m", "pyspark.daemon", "pyspark.worker"], ["-c", "pass"], [*PLANNER_ARGUMENTS, "x"]]
)
def test_other_programs_begin_as_python(environment: Environment, given: list[str]) -> None:
    made(environment.packages / CLIENT)
    assert environment.started(*given) == given
