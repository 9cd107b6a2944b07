"""Gives all suites of this folder one small Spark, and each test its streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_common.runtime.grpc_forks import keep_grpc_out_of_forks
from pravega_spark.jvm.jar import jar_path
from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.streams import Streams
from tests.support.cluster import running_cluster
from tests.support.secured_suite import clients_environment, security_of_suite

REPOSITORY = Path(__file__).parents[2]

# A process of the suite may use gRPC for minutes before the first test that needs the JVM.
keep_grpc_out_of_forks()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2]``; Spark's own discovery finds the connector in the repository's folder.

    With the launcher, as users are advised: planners start in a third of the CPU. Sessions in processes of their own
    have the plain Python.
    """
    os.environ["PYSPARK_PYTHON"] = str(Path(sys.executable).with_name("pravega-spark-python"))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pravega-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.stopTimeout", "30s")
    )
    # The JVM and its Python workers keep the environment that they began with.
    with clients_environment(security_of_suite()):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """One set of services for all suites of the folder."""
    with running_cluster(tmp_path_factory.mktemp("services")) as started:
        yield started


@pytest.fixture(scope="session")
def jar() -> Path:
    """The optional jar. Built if need be, which takes a JDK; Spark itself does with less."""
    if shutil.which("javac") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no javac on the path or in JAVA_HOME")
    subprocess.run([sys.executable, REPOSITORY / "jvm-shim" / "build"], check=True, capture_output=True)
    return jar_path()


@pytest.fixture
def streams(services: StandaloneProcess, spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """A scope of its own for each test."""
    made = Streams(spark, services.controller_uri, f"scope-{uuid.uuid4().hex[:8]}", tmp_path)
    yield made
    made.close()
