"""Checks the executors for ``doctor --spark``: a task on each imports the package and reads from a stream."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pravega_spark.commands.connection import cluster_address
from pravega_spark.commands.findings import Finding, check
from pravega_spark.commands.scratch import make_scratch, remove_scratch, scratch_scope
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

tasks_per_core: Final = 2
rounds_max: Final = 5
"""Rounds of tasks before some executor counts as missing."""
settled_look_s: Final = 0.5
settled_looks: Final = 6
"""Consecutive looks that must see the same number of executors before tasks are sent out."""
task_time_s: Final = 0.2
"""Duration of a task at least, so that a free executor does not run all of them."""


_PYTHON_ERROR: Final = re.compile(r"[\w.]*(?:Error|Exception|NotFound|Unavailable): ")


def executors(controller: str, master: str) -> list[Finding]:
    """Returns a finding for Spark itself and one for every executor."""
    started: list[Any] = []
    remedy = "is the master reachable, and is Java there? Try: spark-submit --version"
    first = check_any("spark", remedy, lambda: _start(master, started))
    if not first.is_ok:
        return [first]
    spark = started[0]
    try:
        return [first, *_run_tasks(spark, controller)]
    finally:
        spark.stop()


def check_any(name: str, remedy: str, look: Any) -> Finding:
    """Runs a check that may fail with any error: Java's errors, through Py4J, share no base class with others."""
    try:
        return check(name, remedy, look)
    except Exception as error:
        return Finding(name, False, _cause(error), remedy)


def _cause(error: Exception) -> str:
    """Finds the line that says what happened in an error that carries the traces of Python and Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python or lines or [type(error).__name__])[0][:300]


def _start(master: str, started: list[Any]) -> str:
    from pyspark.sql import SparkSession

    # PYSPARK_PYTHON stays as it is: jobs will have the same, and often Spark takes python3 of the path.
    builder = SparkSession.builder.appName("pravega-spark doctor").master(master)
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    started.append(spark)
    return f"{spark.version} on {master}"


def _run_tasks(spark: SparkSession, controller: str) -> list[Finding]:
    scope = scratch_scope()
    remedy = (
        "install pravega-spark in the Python of the executors, or ship it with --archives; which Python that is say "
        "PYSPARK_PYTHON and spark.pyspark.python, else it is python3 of the path. The Python of this command: "
        f"export PYSPARK_PYTHON={sys.executable}"
    )
    with StreamClient(cluster_address(controller)) as client:
        try:
            wanted = make_scratch(client, scope)
            answers: dict[str, str] = {}
            failure = check_any("executors", remedy, lambda: _ask_all(spark, controller, scope, answers))
        finally:
            remove_scratch(client, scope)
    each = [
        Finding(f"executor {name}", answer.startswith(f"{len(wanted)} events"), answer, remedy)
        for name, answer in sorted(answers.items())
    ]
    return [failure, *each]


def _executor_count(spark: SparkSession) -> int:
    """Counts the executors; the driver is one only where it runs the tasks."""
    context: Any = spark.sparkContext
    known = context._jsc.sc().getExecutorMemoryStatus().size()
    return 1 if re.fullmatch(r"local(\[.*\])?", str(context.master)) else int(known) - 1


def _settled_count(spark: SparkSession) -> int:
    """Counts the executors once no more have come for a while: they start one by one."""
    count, looks = _executor_count(spark), 0
    while looks < settled_looks and not str(spark.sparkContext.master).startswith("local["):
        time.sleep(settled_look_s)
        seen = _executor_count(spark)
        looks = looks + 1 if seen == count else 0
        count = seen
    return count


def _ask_all(spark: SparkSession, controller: str, scope: str, answers: dict[str, str]) -> str:
    context = spark.sparkContext
    expected = max(1, _settled_count(spark))
    count = max(expected, context.defaultParallelism) * tasks_per_core
    for _ in range(rounds_max):
        found = context.parallelize(range(count), count).mapPartitions(_Probe(controller, scope)).collect()
        answers.update(found)
        expected = max(expected, _executor_count(spark))
        if len(answers) >= expected:
            return f"{len(answers)} of {expected} answered"
    raise ValueError(f"{len(answers)} of {expected} executors ran a task")


class _Probe:
    """A function for tasks: takes the rows of a partition, yields the executor's name and what it found.

    Pickled by reference, so that a task fails where the package is missing.
    """

    def __init__(self, controller: str, scope: str) -> None:
        self._controller = cluster_address(controller)
        self._scope = scope

    def __call__(self, _: Iterable[int]) -> Iterator[tuple[str, str]]:
        import pyarrow

        with StreamClient(self._controller) as client:
            count = sum(1 for _ in read_events(client, self._scope, "probe"))
        time.sleep(task_time_s)
        # The parent of a Python worker is the executor's daemon, one for each executor.
        name = f"{platform.node()}/{os.getppid()}"
        yield name, f"{count} events read by Python {platform.python_version()} with pyarrow {pyarrow.__version__}"
