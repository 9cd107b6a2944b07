"""Starts what a bench runs on: services, Kafka if wanted, one Spark session with both connectors, the watch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from pravega_spark.spark_python import spark_python
from pravega_spark.standalone.process import StandaloneProcess
from tests.bench.ceilings import CeilingSource
from tests.bench.sides import PravegaSide, Side
from tests.bench.timed_sink import RECORDS_VARIABLE, TimedSource
from tests.bench.watch import Watch

driver_memory: Final = "4g"
progress_updates_max: Final = 1_000_000
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "tls": {"tls": True},
    "tcp": {"environment": {"PRAVEGA_SEGMENT_STORE_STORE__LOCAL_SOCKET": "false"}},
    "three-redis": {"redis_servers": 3},
    "file": {"tier1": "file"},
}
"""Services beside the usual ones, by name: the options of the standalone that differ, ``environment`` for what differs
there. The side is ``ours-<name>``."""


@dataclass(frozen=True)
class Rig:
    """``sides``: ours first, then those of ``VARIANTS``, then Kafka, as far as they take part."""

    folder: Path
    spark: SparkSession
    cluster: StandaloneProcess
    sides: Sequence[Side]
    watch: Watch

    @property
    def ours(self) -> PravegaSide:
        side = self.sides[0]
        if not isinstance(side, PravegaSide):
            raise TypeError(f"the first side of a bench is ours, not {side.name}")
        return side

    @property
    def commit_records(self) -> Path:
        return self.folder / "commits"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def running_rig(
    tier2: str, *, with_kafka: bool, variants: Sequence[str] = (), jars: Sequence[Path] = ()
) -> Iterator[Rig]:
    """Starts all of it in a folder of its own, and stops and removes it at the end. The session has ``jars``, too.

    Raises ``NotAvailable`` when Kafka is wanted and cannot be had, before anything is started.
    """
    jars = list(jars)
    if with_kafka:
        from tests.bench.kafka.jars import broker_jars, connector_jars

        say("Kafka's jars: from the cache, or from Maven Central the first time")
        broker_jars()
        jars += connector_jars()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-bench-"))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = ends.enter_context(_running_cluster(folder / "cluster", tier2=tier2))
        sides: list[Side] = [PravegaSide(cluster.controller_uri)]
        others: dict[str, int] = {}
        for variant in variants:
            second = ends.enter_context(_running_cluster(folder / variant, tier2=tier2, **VARIANTS[variant]))
            sides.append(PravegaSide(second.controller_uri, name=f"ours-{variant}", ca_file=second.ca_file))
            others |= {f"{variant}-{name}": pid for name, pid in _services(second).items()}
        if with_kafka:
            from tests.bench.kafka.broker import running_broker
            from tests.bench.kafka.side import KafkaSide

            broker = ends.enter_context(running_broker(folder / "kafka"))
            sides.append(KafkaSide(broker.bootstrap))
            others["kafka"] = broker.pid
        for side in sides:
            ends.callback(side.close)
        (folder / "commits").mkdir()
        os.environ[RECORDS_VARIABLE] = str(folder / "commits")
        spark = _session(jars, folder)
        ends.callback(spark.stop)
        # PySpark gives no public way to the JVM's process id.
        jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        mark = f"{RECORDS_VARIABLE}={os.environ[RECORDS_VARIABLE]}"
        watch = Watch(jvm, lambda: {**_services(cluster), **others}, mark)
        yield Rig(folder, spark, cluster, sides, watch)


@contextmanager
def _running_cluster(
    folder: Path, *, environment: dict[str, str] | None = None, **options: Any
) -> Iterator[StandaloneProcess]:
    """Prints the last lines of the logs on a failure inside, before the folder goes."""
    cluster = StandaloneProcess(folder, **options)
    cluster.start(environment)
    try:
        yield cluster
    except Exception:
        say(cluster.log_tail())
        raise
    finally:
        cluster.stop()


def _services(cluster: StandaloneProcess) -> Mapping[str, int]:
    pids: dict[str, int] = cluster.ready()["pids"]
    return pids


def _session(jars: Sequence[Path], folder: Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", spark_python())
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pravega-spark bench")
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "16777216")
        .config("spark.sql.streaming.numRecentProgressUpdates", str(progress_updates_max))
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for source in (CeilingSource, TimedSource):
        spark.dataSource.register(source)
    return spark
