"""The window of a standalone shows what is written, and says so when the store is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.browser import Browser
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    why = "a browser asks a person for the user and whether to trust the authority"
    with running_cluster(tmp_path_factory.mktemp("cluster"), as_is=why) as started:
        yield started


def address_of(cluster: StandaloneProcess) -> str:
    return f"http://{cluster.ready()['rest']}/"


async def test_what_is_written_is_seen(browser: Browser, cluster: StandaloneProcess, tmp_path: Path) -> None:
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("shop")
        client.controller.create_stream("shop", "orders", StreamConfiguration(ScalingPolicy.fixed(2)))
        with EventWriter(client, "shop", "orders") as writer:
            for number in range(1_000):
                writer.write(b"x" * 1_000, f"key-{number}")
        await browser.open(address_of(cluster))
        await browser.sees("shop/orders")
        await browser.sees("B/s")
        await browser.open(f"{address_of(cluster)}#/stream/shop/orders")
        await browser.sees("984 KiB", ".tiles")
        await browser.sees("fixed, 2 at the start or more")
        with EventWriter(client, "shop", "orders") as writer:

            async def is_written() -> bool:
                writer.write(b"x" * 300_000, "key")  # at each look: a rate is shown for one refresh of the page only
                writer.flush()
                return "iB/s" in await browser.text(".tiles")

            await eventually(is_written, "the rate of what is written")
        transaction = client.controller.create_transaction("shop", "orders", 30_000)
        assert transaction

        async def is_open() -> bool:
            return "Open transactions\n1" in await browser.text(".tiles")

        await eventually(is_open, "the open transaction")


async def test_events_are_shown_in_four_ways_and_never_as_markup(browser: Browser, cluster: StandaloneProcess) -> None:
    markup = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    record = bytes.fromhex("E7 02 03 0000000000000000 00000001 00000000 6B 76")
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope("events")
        client.controller.create_stream("events", "mixed", StreamConfiguration(ScalingPolicy.fixed(1)))
        with EventWriter(client, "events", "mixed") as writer:
            for event in (markup, b'{"item":"tea"}', record):
                writer.write(event, "key")
    await browser.open(f"{address_of(cluster)}#/events/events/mixed")
    await browser.sees("<script>document.title='owned'</script>")
    assert await browser.count("main script, main img") == 0
    assert await browser.run("return document.title") == "Events of events/mixed"
    for name, shown in (
        ("json", '"item": "tea"'),
        ("record", "key: k"),
        ("hex", "e7 02 03 00"),
        ("text", '"item":"tea"'),
    ):
        await browser.run(
            "const [select, value] = [document.querySelectorAll('select')[1], arguments[0]];"
            "select.value = value; select.dispatchEvent(new Event('change'))",
            name,
        )
        await browser.sees(shown)
    await browser.type("input[type=search]", "tea")
    await browser.sees("1 event of 3.")
    assert await browser.count("article") == 1
