"""Installs the wheel into an environment of its own and uses it as a newcomer does: commands, standalone, Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.version import __version__
from pravega_spark.shipped_files import shipped_names
from pravega_spark.standalone.process import StandaloneProcess
from tests.support.cluster import running_cluster
from tests.support.repository import ROOT
from tests.support.wheel import WheelEnvironment, build_wheel

pytestmark = pytest.mark.timeout(600)

command_time_max_s = 60.0
spark_time_max_s = 240.0
EVENTS = b"".join(b"order %03d\n" % number for number in range(100))
FIRST_PROGRAM = re.compile(r"<!-- first\.py: .*? -->\n\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> WheelEnvironment:
    folder = tmp_path_factory.mktemp("installed")
    (folder / "sources").mkdir()
    return WheelEnvironment(folder / "environment", build_wheel(folder / "sources"))


@pytest.fixture(scope="module")
def cluster(installed: WheelEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """The standalone of the wheel."""
    of_the_wheel = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    why = "the README's first program is run word for word"
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, as_is=why, environment=of_the_wheel, python=installed.python) as started:
        yield started


def test_the_version(installed: WheelEnvironment, tmp_path: Path) -> None:
    told = installed.run("pravega-spark", "--version", cwd=tmp_path, timeout_s=command_time_max_s)
    assert told == f"pravega-spark {__version__}\n"


def test_the_modules_are_those_of_the_wheel(installed: WheelEnvironment, tmp_path: Path) -> None:
    program = "import pravega_spark, pyspark_pravega, segment_service; print(pravega_spark.__file__)"
    told = installed.run("python", "-c", program, cwd=tmp_path, timeout_s=command_time_max_s)
    assert Path(told.strip()).is_relative_to(installed.folder)


def test_shipped_files_are_there_and_as_in_the_sources(installed: WheelEnvironment, tmp_path: Path) -> None:
    told = installed.run("pravega-spark", "files", "--json", cwd=tmp_path, timeout_s=command_time_max_s)
    paths = {name: Path(path) for name, path in json.loads(told).items()}
    assert sorted(paths) == shipped_names()
    for name, path in paths.items():
        assert path.is_relative_to(installed.folder)
        assert path.read_bytes() == (ROOT / name).read_bytes()


def test_the_program_for_spark_submit_starts(installed: WheelEnvironment, tmp_path: Path) -> None:
    path = installed.run("pravega-spark", "files", "scripts/backfill.py", cwd=tmp_path, timeout_s=command_time_max_s)
    assert "load" in installed.run("python", path.strip(), "--help", cwd=tmp_path, timeout_s=command_time_max_s)


def test_a_stream_is_made_filled_and_read(
    installed: WheelEnvironment, cluster: StandaloneProcess, tmp_path: Path
) -> None:
    settings = {"PRAVEGA_CONTROLLER": cluster.controller_uri}
    (tmp_path / "events").write_bytes(EVENTS)
    read = ""
    for command in ("stream create shop/lines", "event write shop/lines < events", "event read shop/lines"):
        read = installed.run(
            "sh", "-c", f"pravega-spark {command}", cwd=tmp_path, timeout_s=command_time_max_s, more=settings
        )
    assert read.encode() == EVENTS


def test_the_first_program_of_the_readme_runs_as_it_stands_twice(
    installed: WheelEnvironment, cluster: StandaloneProcess, tmp_path: Path
) -> None:
    """Spark's workers take the `python3` of the path: nothing is set."""
    [program] = FIRST_PROGRAM.findall((ROOT / "README.md").read_text())
    (tmp_path / "first.py").write_text(program)
    settings = {"PRAVEGA_CONTROLLER": cluster.controller_uri}
    for _ in range(2):
        told = installed.run("python", "first.py", cwd=tmp_path, timeout_s=spark_time_max_s, more=settings)
        assert told.endswith("240 events\n")
