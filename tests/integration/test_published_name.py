"""Clients elsewhere get an address that works: a standalone listens on all addresses and is known by another one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster

OTHER = "127.0.0.2"
"""A second address of this machine, which nothing listens on that was told 127.0.0.1."""


@pytest.mark.parametrize("tls", [False, True])
def test_all_addresses_that_are_given_are_the_published_one(tmp_path: Path, tls: bool) -> None:
    options: dict[str, Any] = {"host": "0.0.0.0", "published": OTHER, "tier1": "file", "controllers": 2}
    if tls:
        options["tls"] = True
    with running_cluster(tmp_path, **options) as own:
        ready = own.ready()
        given = [*ready["controller"].split(","), ready["rest"], *ready["segment_stores"], *ready["metrics"]]
        assert all(address.startswith(f"{OTHER}:") for address in given) and len(given) == 7
        with client_of(own) as client:
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            assert client.controller.endpoint("s", "t", 0).host == OTHER
            with EventWriter(client, "s", "t") as writer:
                writer.write(b"event", "k")
            assert [bytes(event.data) for event in read_events(client, "s", "t")] == [b"event"]
        for address in given:
            port = int(address.partition("/")[0].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=10):
                pass


def client_of(own: StandaloneProcess) -> StreamClient:
    return StreamClient(own.controller_uri, ca_file=own.ca_file) if own.ca_file else StreamClient(own.controller_uri)
