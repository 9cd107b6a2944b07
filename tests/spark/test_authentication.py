"""Spark reads and writes with the least that its users need, and shows no secret to anybody.

The credentials are options of the driver alone: tasks have them from it, and nothing in their environment.
"""

from __future__ import annotations

import base64
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from pravega_common.errors import AccessDenied
from pravega_common.model.transaction_sets import Sink
from pravega_spark.sink.sink_secret import FILE_NAME
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.credentials import BasicCredentials
from pravega_streams.stream_manager import StreamManager
from tests.spark.conftest import REPOSITORY
from tests.spark.spark_child import ChildFailed, SparkChild
from tests.support.processes import descendants
from tests.support.security_cluster import PASSWORD, authenticating_cluster

SCOPE: Final = "spark"
USERS: Final = {
    "operator": "prn::*,READ_UPDATE",
    "filler": "prn::/scope:spark/stream:from,READ_UPDATE",
    "reader": "prn::/scope:spark/stream:from,READ",
    "sink": "prn::/scope:spark/stream:to,READ_UPDATE",
}
COUNT: Final = 200
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with authenticating_cluster(tmp_path_factory.mktemp("authentication"), USERS, tier2="minio") as started:
        with StreamManager(started.controller_uri, credentials=BasicCredentials("operator", PASSWORD)) as operator:
            operator.create_scope(SCOPE)
            for stream in ("from", "to"):
                operator.create_stream(SCOPE, stream, 2)
        yield started


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SparkChild]:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "events").mkdir()
    configuration = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{tmp_path / 'events'}",
        "spark.ui.enabled": "false",
    }
    with SparkChild(tmp_path, configuration, {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}) as made:
        yield made


def fill(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.range(COUNT).selectExpr("cast(id as string) as event", "concat('k', id % 10) as routing_key")
    rows.write.format("pravega").mode("append").options(**options).save()


def count(spark: SparkSession, options: dict[str, str]) -> tuple[int, str]:
    """The number of events, and the plans that Spark shows."""
    read = spark.read.format("pravega").options(**options).load()
    return read.count(), str(read._jdf.queryExecution().toString())


def copy(spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: str) -> tuple[str, str]:
    """Copies what there is in one query with two users; its id, and its plans and progress as Spark shows them."""
    rows = spark.readStream.format("pravega").options(**source, start_stream_cut="earliest").load()
    writer = rows.select("event").writeStream.format("pravega").options(**sink, checkpointLocation=checkpoint)
    query: Any = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shown = query._jsq.explainInternal(True)
    return str(query.id), f"{shown} {query.lastProgress}"


class Options:
    """The options of a user on one stream."""

    def __init__(self, cluster: StandaloneProcess, folder: Path) -> None:
        self._common = {"controller": cluster.controller_uri, "scope": SCOPE, "password_file": str(folder / "password")}

    def of(self, user: str, stream: str) -> dict[str, str]:
        return {**self._common, "user": user, "stream": stream}


def arguments_below(*roots: int) -> str:
    """The command lines of processes and all below them, as ps shows them."""
    pids = {pid for root in roots for pid in (root, *descendants(root))}
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
        except FileNotFoundError:
            continue
    return " ".join(found)


def metrics_of(cluster: StandaloneProcess) -> str:
    """The metrics of the controller, as an operator reads them."""
    header = BasicCredentials("operator", PASSWORD).header()
    url = f"http://127.0.0.1:{cluster.options['rest_port']}/metrics"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": header}), timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def secrets_of(cluster: StandaloneProcess, checkpoint: Path, sink: Sink) -> dict[str, tuple[bytes, ...]]:
    """All that must not be seen, in the forms in which it could be."""
    kept = (checkpoint / FILE_NAME).read_text().split()[2]
    minio = cluster.folder / "data" / "minio" / "credentials"
    return {
        "password": (PASSWORD.encode(), base64.b64encode(PASSWORD.encode())[:-4]),
        "header": tuple(BasicCredentials(user, PASSWORD).header().encode().split()[1] for user in USERS),
        "delegation token": (b"eyJ",),
        "secret of the sink": (kept.encode(), bytes.fromhex(kept)),
        "secret of Tier 2": (minio.read_bytes().split()[1],),
    }


def test_each_user_needs_no_more_and_no_secret_is_shown(
    cluster: StandaloneProcess, driver: SparkChild, tmp_path: Path
) -> None:
    options, checkpoint = Options(cluster, tmp_path), tmp_path / "checkpoint"
    driver.run(fill, options.of("filler", "from"))
    with pytest.raises(ChildFailed, match="user reader has no READ_UPDATE on prn::/scope:spark/stream:from") as refused:
        driver.run(fill, options.of("reader", "from"))
    with pytest.raises(
        ChildFailed, match="AccessDenied: user reader has no READ_UPDATE on prn::/scope:spark/stream:from"
    ):
        driver.run(fill, {**options.of("reader", "from"), "exactly_once": "false"})
    with pytest.raises(ChildFailed, match="user sink has no READ on prn::/scope:spark/stream:from"):
        driver.run(count, options.of("sink", "from"))
    found, plans = driver.run(count, options.of("reader", "from"))
    assert found == COUNT
    query, shown = driver.run(copy, options.of("reader", "from"), options.of("sink", "to"), str(checkpoint))
    arguments = arguments_below(driver.pid, *map(int, cluster.ready()["pids"].values()))
    assert "pyspark" in arguments and "controller" in arguments

    sink = Sink(query, f"{SCOPE}/to")
    with StreamClient(cluster.controller_uri, credentials=BasicCredentials("sink", PASSWORD)) as client:
        events = {int(bytes(event.data)) for event in read_events(client, SCOPE, "to")}
        with pytest.raises(AccessDenied, match=r"docs/security\.md 6"):
            client.sets.commit(sink, "stranger", 2**63 - 1, [], 0, 0)
        with pytest.raises(AccessDenied, match="user sink has no READ on prn::/"):
            list(client.sets.list_sinks())
        with pytest.raises(AccessDenied, match="user sink has no READ_UPDATE on prn::/"):
            client.sets.forget(sink)
    assert events == set(range(COUNT))
    with StreamClient(cluster.controller_uri, credentials=BasicCredentials("operator", PASSWORD)) as client:
        assert sink in [record.sink for record in client.sets.list_sinks()]

    texts = {
        "plan": plans,
        "query": shown,
        "error": str(refused.value),
        "ps": arguments,
        "/metrics": metrics_of(cluster),
    }
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("password", FILE_NAME)]
    files += [cluster.log_file, *(cluster.folder / "data" / "logs").glob("*.log")]
    assert any("events" in path.parts for path in files) and any("checkpoint" in path.parts for path in files)
    seen = [(str(path), path.read_bytes()) for path in files]
    seen += [(name, text.encode()) for name, text in texts.items()]
    leaks = [
        (name, what)
        for what, forms in secrets_of(cluster, checkpoint, sink).items()
        for name, content in seen
        if any(form in content for form in forms)
    ]
    assert not leaks
