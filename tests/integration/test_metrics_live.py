"""Asks a standalone for its metrics as Prometheus does: all that documents, alerts and the dashboard name are there."""

from __future__ import annotations

import json
import re

from controller_service.lag.known_subscribers import lag_age_max_s
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.alert_rules import expressions, metrics_of
from tests.support.cluster import cluster
from tests.support.eventually import eventually_blocking
from tests.support.pages import metrics_at
from tests.support.repository import ROOT

__all__ = ["cluster"]

FROM_PROMETHEUS = {"up"}


def families(cluster: StandaloneProcess) -> dict[str, str]:
    """The type of each metric of the controller and the store, by the name that a counter's samples have."""
    found = {}
    for address in cluster.ready()["metrics"]:
        for family in metrics_at(cluster, address):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = family.type
    return found


def values_of(cluster: StandaloneProcess) -> dict[tuple[str, ...], float]:
    """The samples of the controller and the store, by name and values of labels."""
    values = {}
    for address in cluster.ready()["metrics"]:
        for family in metrics_at(cluster, address):
            values.update({(sample.name, *sample.labels.values()): sample.value for sample in family.samples})
    return values


def is_birthday(name: str) -> bool:
    """Whether a metric is the time at which the client library made another one."""
    return name.endswith("_created")


def test_what_is_named_is_there(cluster: StandaloneProcess) -> None:
    live = families(cluster)
    histograms = [name for name, kind in live.items() if kind == "histogram"]
    live_samples = live.keys() | {f"{name}{part}" for name in histograms for part in ("_bucket", "_sum", "_count")}
    for expression in expressions():
        assert metrics_of(expression) - FROM_PROMETHEUS <= live_samples, expression
    documented = dict(re.findall(r"^\| `(pravega_\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    served = {name: kind for name, kind in live.items() if name.startswith("pravega_") and not is_birthday(name)}
    assert served == documented


def test_a_write_and_a_read_are_seen_and_recorded(cluster: StandaloneProcess) -> None:
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t")
        with EventWriter(client, "s", "t") as writer:
            writer.write(b"event", "k")
        assert len(list(read_events(client, "s", "t"))) == 1
    values = values_of(cluster)
    assert values[("pravega_store_append_seconds_count",)] >= 1
    assert values[("pravega_store_read_seconds_count",)] >= 1
    assert values[("pravega_store_request_seconds_count", "SetupAppend")] >= 1
    assert values[("pravega_controller_call_seconds_count", "createStream")] >= 1
    assert (values[("pravega_store_ready",)], values[("pravega_controller_ready",)]) == (1, 1)
    assert values[("pravega_store_recovery_seconds_count",)] == values[("pravega_store_containers",)]
    assert 0 < values[("pravega_store_disk_free_bytes", "tier2")] < values[("pravega_store_disk_bytes", "tier2")]
    eventually_blocking(lambda: values_of(cluster)[("pravega_store_flush_seconds_count",)] >= 1, "a write to Tier 2")
    audit = (cluster.folder / "data" / "logs" / "audit-controller.jsonl").read_text().splitlines()
    calls = [(record["call"], record["on"], record["outcome"]) for record in map(json.loads, audit)]
    assert calls == [("createScope", "s", "SUCCESS"), ("createStream", "s/t", "SUCCESS")]


def test_the_traffic_of_a_stream_and_the_lag_of_its_subscriber_are_seen(cluster: StandaloneProcess) -> None:
    def count(name: str) -> float:
        return values_of(cluster).get((f"pravega_store_stream_{name}_total", "lag/t"), 0)

    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("lag")
        client.controller.create_stream("lag", "t")
        with EventWriter(client, "lag", "t") as writer:

            def is_watched() -> bool:
                writer.write(bytes(92), "k")
                writer.flush()
                return count("in_events") > 0

            eventually_blocking(is_watched, "a watch of the container")
        written = len(list(read_events(client, "lag", "t")))
        groups = ReaderGroupClient(client.controller.transport)
        registration = groups.subscribe("lag", "query", [("lag", "t")])
        groups.update_cut(registration, "lag", "t", {0: 100})

    def is_behind() -> bool:
        behind = values_of(cluster).get(("pravega_controller_subscriber_behind_bytes", "lag/t", "lag/query"))
        return behind == (written - 1) * 100

    eventually_blocking(is_behind, "the lag of the subscriber", lag_age_max_s + 20)
    assert count("out_bytes") == written * 100
    assert 0 < count("in_events") <= written and count("in_bytes") == count("in_events") * 100
