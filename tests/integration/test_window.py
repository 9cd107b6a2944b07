"""The window of a standalone reads events between head and tail, whole, in order and a bounded number at a time."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
from typing import Any

import pytest

from controller_service.window.events import events_max
from pravega_common.names import segment_id
from pravega_common.stream_cut import StreamCut
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import client, cluster, new_stream_in
from tests.support.eventually import eventually_blocking
from tests.support.pages import open_page

__all__ = ["client", "cluster"]
SCOPE = "window"


def ask(cluster: StandaloneProcess, path: str, **query: object) -> Any:
    address = f"{cluster.ready()['rest']}/v1/window/{path}?{urllib.parse.urlencode(query)}"
    with open_page(cluster, address) as answer:
        return json.load(answer)


def texts(page: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(event["data"]) for event in page["events"]]


def test_all_events_are_found_page_by_page(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream_in(SCOPE, client)
    events = [b"event %d " % number + b"x" * (number * 37 % 3_000) for number in range(400)]
    with EventWriter(client, SCOPE, stream) as writer:
        for event in events:
            writer.write(event, "key")
    path = f"scopes/{SCOPE}/streams/{stream}/events"
    page = ask(cluster, path, segment="0.0", start="head")
    found = texts(page)
    while page["next"] < page["length"]:
        assert 0 < len(page["events"]) <= events_max
        page = ask(cluster, path, segment="0.0", start="offset", offset=page["next"])
        found += texts(page)
    assert found == events
    newest = texts(ask(cluster, path, segment="0.0"))
    assert newest and newest == events[-len(newest) :]


def test_events_of_a_time_and_of_a_cut(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream_in(SCOPE, client)
    path = f"scopes/{SCOPE}/streams/{stream}/events"
    with EventWriter(client, SCOPE, stream) as writer:
        writer.write(b"early", "key")
    cut = StreamCut(SCOPE, stream, {0: client.segment_infos(SCOPE, stream, [0])[0].length})
    time.sleep(0.3)  # two stretches of the index, so that a time lies between them
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.3)  # as before
    with EventWriter(client, SCOPE, stream) as writer:
        writer.write(b"late", "key")

    def found(**query: object) -> list[bytes]:
        return texts(ask(cluster, path, segment="0.0", **query))

    eventually_blocking(lambda: found(start="time", timeMs=between_ms) == [b"late"], "the index")
    assert found(start="time", timeMs=0) == [b"early", b"late"]
    assert found(start="cut", cut=cut.as_text()) == [b"late"]
    for wrong, said in (
        (StreamCut(SCOPE, stream, {segment_id(7, 3): 0}).as_text(), "other segments: 7.3"),
        (StreamCut(SCOPE, "another", {0: 0}).as_text(), "not of this stream"),
        ("nothing", "stream cut"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            found(start="cut", cut=wrong)
        assert refused.value.code == 400 and said in str(refused.value)


def test_an_empty_stream_has_no_events(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream_in(SCOPE, client)
    for start in ("head", "tail"):
        page = ask(cluster, f"scopes/{SCOPE}/streams/{stream}/events", segment="0.0", start=start)
        assert (page["events"], page["next"], page["length"]) == ([], 0, 0)


def test_what_cannot_be_read_is_refused(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream_in(SCOPE, client)
    with EventWriter(client, SCOPE, stream) as writer:
        writer.write(b"a text of some length", "key")
    own = f"scopes/{SCOPE}/streams/{stream}/events"
    for path, query, status in (
        (own, {"segment": "0.0", "start": "offset", "offset": 9}, 400),
        (own, {"segment": "0.0", "start": "offset", "offset": 99_999}, 400),
        (own, {"segment": "7.0"}, 404),
        (own, {"segment": "x"}, 400),
        (own, {"segment": "../../_system/x/0.0"}, 400),
        (own, {}, 400),
        ("scopes/_system/streams/_requeststream/events", {"segment": "0.0"}, 400),
        (f"scopes/{SCOPE}/streams/none/events", {"segment": "0.0"}, 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(cluster, path, **query)
        assert refused.value.code == status, (path, query, refused.value.reason)


def test_figures_are_those_of_the_stream(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream_in(SCOPE, client, segments=2)
    with EventWriter(client, SCOPE, stream) as writer:
        for number in range(100):
            writer.write(b"x" * 92, str(number))
    facts = ask(cluster, f"scopes/{SCOPE}/streams/{stream}")
    assert (facts["sizeBytes"], facts["segmentCount"], facts["state"]) == (10_000, 2, "active")
    assert facts["unknown"] == [] and sum(one["offset"] for one in facts["tail"]["positions"]) == 10_000
    picture = ask(cluster, f"scopes/{SCOPE}/streams/{stream}/picture")
    assert sum(segment["bytes"] for segment in picture["segments"]) == 10_000
    # What a store said while it started goes with its next lease.
    eventually_blocking(lambda: ask(cluster, "cluster")["problems"] == [], "a cluster without problems")
    view = ask(cluster, "cluster")
    assert view["ownerless"] == []
    assert sorted(number for store in view["stores"] for number in store["containers"]) == list(
        range(view["containerCount"])
    )
