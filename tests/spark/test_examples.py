"""Runs every example and notebook as it stands on services, and holds the cookbook against the files it shows."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.connect_server import ConnectServer
from tests.spark.spark_child import SparkChild
from tests.support.cluster import running_cluster
from tests.support.repository import ROOT
from tests.support.spark_environment import environment_without_spark

EXAMPLES = ROOT / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
COOKBOOK = ROOT / "docs" / "cookbook.md"
WRITER = runpy.run_path(str(ROOT / "scripts" / "lib" / "write_cookbook.py"))
MODULE = "sample.py"
OVER_CONNECT = "over_spark_connect.py"
connect_time_max_s = 240.0


def orders() -> list[dict[str, Any]]:
    """The sample, read without Spark."""
    files = sorted((EXAMPLES / "data" / "orders").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


ORDERS = orders()


def closed_hours() -> list[str]:
    """The hours whose end the watermark has passed: two hours behind the newest order."""
    times = [datetime.fromisoformat(order["time"]) for order in ORDERS]
    watermark = max(times) - timedelta(hours=2)
    hours = Counter(time.replace(minute=0, second=0) for time in times)
    return [
        f'"hour":"{hour:%Y-%m-%dT%H}:00:00.000Z","orders":{count},'
        for hour, count in sorted(hours.items())
        if hour + timedelta(hours=1) <= watermark
    ]


def printed() -> dict[str, list[str]]:
    """What each example prints, or how each line begins, by the sample."""
    count, days = len(ORDERS), Counter(order["time"][:10] for order in ORDERS)
    customers = len({order["customer"] for order in ORDERS})
    large = sum(order["quantity"] >= 3 for order in ORDERS)
    pieces: Counter[str] = Counter()
    for order in ORDERS:
        pieces[order["item"]] += order["quantity"]
    return {
        "files_to_stream.py": [f"in the stream: {count}"],
        "copy_stream.py": [f"copied: {count} of {customers} customers"],
        "change_data_capture.py": ["ada lives in Porto", "cleo lives in Turin"],
        "replay_a_day.py": [f"orders of the day: {days['2026-07-01']}"],
        "windows_by_time.py": ["{" + hour for hour in closed_hours()],
        "backfill_then_stream.py": [f"history: {count}", f"after the stream: {count + 30} of which zoe: 30"],
        "several_sinks.py": [f"large {large}", f"small {count - large}"],
        "streams_by_pattern.py": [f"branch-lisbon {count}", f"branch-oslo {count}"],
        "join_streams.py": [f"paid orders: {days['2026-07-01']}"],
        "export_to_files.py": [f"{day} {number}" for day, number in sorted(days.items())],
        "query_with_sql.py": [
            f"{item} {n}" for item, n in sorted(pieces.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
        OVER_CONNECT: ["read: 100"],
    }


PRINTED = printed()
NOTEBOOK_LINES = {
    "first_steps.ipynb": [f"|{item:>6}|" for item in sorted({order["item"] for order in ORDERS})],
    "records_and_time.ipynb": ["|hugo| NULL|", "|2026-07-02 06:00:00|"],
}
"""Lines that a notebook's tables have."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Services of their own: the examples name their streams."""
    with running_cluster(tmp_path_factory.mktemp("services")) as started:
        yield started


@pytest.fixture(scope="module")
def child(cluster: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkChild]:
    configuration = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    environment = {
        "PRAVEGA_CONTROLLER": cluster.controller_uri,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    with SparkChild(tmp_path_factory.mktemp("examples"), configuration, environment) as started:
        yield started


# What runs in the child


def run_program(spark: SparkSession, path: str) -> str:
    """What a program prints; its folder is the first on the path, as it is for `python PROGRAM`."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(path, run_name="__main__")
    return output.getvalue()


def run_notebook(spark: SparkSession, path: str) -> str:
    """What the code cells of a notebook print, one after the other under one set of names."""
    output = io.StringIO()
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(output):
        for number, cell in enumerate(json.loads(Path(path).read_text())["cells"]):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path}, cell {number}", "exec"), names)
    return output.getvalue()


# The tests


def check_lines(given: str, expected: list[str]) -> None:
    lines = given.splitlines()
    assert len(lines) == len(expected), given
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), (given, expected)


@pytest.mark.parametrize("name", [name for name in PRINTED if name != OVER_CONNECT])
def test_an_example_runs_as_it_stands(child: SparkChild, name: str) -> None:
    check_lines(child.run(run_program, str(EXAMPLES / name)), PRINTED[name])


@pytest.mark.parametrize("name", ["files_to_stream.py", "export_to_files.py"])
def test_an_example_that_is_run_again_repeats_nothing(child: SparkChild, name: str) -> None:
    for _ in range(2):
        check_lines(child.run(run_program, str(EXAMPLES / name)), PRINTED[name])


@pytest.mark.parametrize("name", NOTEBOOK_LINES)
def test_a_notebook_runs_from_top_to_bottom(child: SparkChild, name: str) -> None:
    lines = child.run(run_notebook, str(NOTEBOOKS / name)).splitlines()
    assert all(any(line.startswith(start) for line in lines) for start in NOTEBOOK_LINES[name]), "\n".join(lines)


def test_the_example_of_spark_connect_runs_as_it_stands(cluster: StandaloneProcess, tmp_path: Path) -> None:
    with ConnectServer(tmp_path, {"PRAVEGA_CONTROLLER": cluster.controller_uri}) as server:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / OVER_CONNECT)],
            cwd=tmp_path,
            env={**environment_without_spark(), "SPARK_REMOTE": server.address},
            capture_output=True,
            text=True,
            timeout=connect_time_max_s,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr[-4000:]}\n{server.tail()}"
        check_lines(done.stdout, PRINTED[OVER_CONNECT])


def test_every_example_and_notebook_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTED, MODULE}
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == NOTEBOOK_LINES.keys()


def test_notebooks_are_kept_without_their_output() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code"), path.name


def test_the_cookbook_shows_the_programs_as_they_are() -> None:
    document = COOKBOOK.read_text()
    assert WRITER["with_programs"](document) == document, "run .venv/bin/python scripts/lib/write_cookbook.py"
    assert {found["name"] for found in WRITER["BLOCK"].finditer(document)} == {
        f"examples/{name}" for name in (*PRINTED, MODULE)
    }
