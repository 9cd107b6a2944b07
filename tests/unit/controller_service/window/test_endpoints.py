"""The window's endpoints are answered as the OpenAPI document says, live ones end, and the page is closed to others."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import cast

import aiohttp
import pytest

from controller_service.api.rest import live, window
from controller_service.service import Controller
from controller_service.store.members import ReaderGroupConfig
from controller_service.window.looks import streams_per_look_max
from controller_service.window.page_routes import PAGE_FILES
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.names import user_name_chars_max
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.history import stream_with_history

page_bytes_max = 200_000
"""All files of the page together."""
STREAM = "/v1/window/scopes/shop/streams/orders"
LIVE = "/v1/window/live/scopes/shop/streams/orders"


@pytest.fixture
async def controller(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    await stream_with_history(parts, controller, "shop", "orders", 3, 5)
    yield controller
    await controller.stop()


@pytest.fixture
async def session(controller: Controller) -> AsyncIterator[aiohttp.ClientSession]:
    assert controller.rest is not None
    async with aiohttp.ClientSession(f"http://127.0.0.1:{controller.rest.port}") as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    [
        "/v1/window/cluster",
        "/v1/window/streams?search=ord",
        STREAM,
        f"{STREAM}/use",
        f"{STREAM}/lag",
        f"{STREAM}/picture",
        f"{STREAM}/picture?first=2",
    ],
)
async def test_answers_are_as_described(controller: Controller, session: aiohttp.ClientSession, path: str) -> None:
    assert controller.rest is not None
    bare = path.partition("?")[0].replace("/shop/", "/{scope}/").replace("/orders", "/{stream}")
    [operation] = [one for one in controller.rest.operations if one.path == bare]
    assert operation.answer is not None and operation.method == "GET"
    async with session.get(path) as answer:
        assert answer.status == 200, answer.reason
        operation.answer.validate_json(await answer.read())


async def test_sinks_have_the_names_of_their_queries(controller: Controller, session: aiohttp.ClientSession) -> None:
    for query, label in (("q-named", " daily\norders "), ("q-unnamed", "")):
        await controller.sets.commit(query, "shop/orders", "run-1", 0, (), 0, 0, label=label)
    async with session.get(f"{STREAM}/use") as answer:
        sinks = {sink["queryId"]: sink for sink in (await answer.json())["sinks"]}
    assert sinks["q-named"]["name"] == "daily orders"
    assert set(sinks) == {"q-named", "q-unnamed"} and "name" not in sinks["q-unnamed"], "absent, not empty"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/window/scopes/shop/streams/none", 404),
        ("/v1/window/scopes/none/streams/none/picture", 404),
        ("/v1/window/live/scopes/shop/streams/none", 404),
        ("/v1/window/scopes/shop/streams/none/lag", 404),
        (f"{STREAM}/lag?subscriber=shop/nobody", 404),
        (f"{STREAM}/picture?first=9", 400),
        (f"{STREAM}/picture?last=-1", 400),
        (f"{STREAM}/picture?last=²", 400),
        ("/v1/window/streams?token=x", 400),
        ("/v1/window/streams?scope=none", 404),
        ("/v1/window/live/streams?names=", 400),
        ("/v1/window/live/streams?names=shop", 400),
        ("/v1/window/live/streams", 400),
        (f"/v1/window/live/streams?names={','.join(f'a/{number}' for number in range(51))}", 400),
    ],
)
async def test_what_cannot_be_is_refused(session: aiohttp.ClientSession, path: str, status: int) -> None:
    async with session.get(path) as answer:
        assert answer.status == status, answer.reason


async def test_use_tells_readers_and_transactions(controller: Controller, session: aiohttp.ClientSession) -> None:
    config = ReaderGroupConfig(3000, -1, 1, ReaderGroupRetention.AUTOMATIC, {"shop/orders": {}})
    await controller.parts.groups.create("shop", "billing", "11111111-2222-3333-4444-555555555555", config)
    await controller.transactions.create("shop", "orders", 10_000)
    async with session.get(f"{STREAM}/use") as answer:
        use = await answer.json()
    assert [group["name"] for group in use["groups"]] == ["billing"]
    assert (use["transactions"]["open"], use["transactions"]["waiting"]) == (1, 0)
    assert use["sinks"] == [] and use["unknown"] == []
    async with session.get(f"{STREAM}/lag") as answer:
        lag = await answer.json()
    assert lag["subscribers"] == [{"name": "shop/billing", "unknown": "it has not told a position yet"}]
    async with session.get(STREAM) as answer:
        facts = await answer.json()
    assert facts["sizeBytes"] > 0 and facts["currentEpoch"] == 4 and "head" not in facts


# ---- live answers ----------------------------------------------------------------------------------------------------


async def event_of(answer: aiohttp.ClientResponse) -> dict[str, object]:
    line = await answer.content.readline()
    assert await answer.content.readline() == b"\n"
    found: dict[str, object] = json.loads(line.removeprefix(b"data: "))
    return found


async def test_looks_come_one_after_the_other(
    parts: ControllerParts, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "look_period_s", 0.01)
    async with session.get(LIVE) as answer:
        assert answer.content_type == "text/event-stream"
        first = await event_of(answer)
        grown = next(
            name for name, one in parts.access.segments.items() if name.startswith("shop/orders/") and not one.is_sealed
        )
        parts.access.append(grown, 1000)
        while (look := await event_of(answer))["bytes"] == first["bytes"]:
            pass
        assert isinstance(first["bytes"], int) and look["bytes"] == first["bytes"] + 1000


async def test_a_page_of_streams_with_the_longest_names_is_followed(session: aiohttp.ClientSession) -> None:
    scope, others = "s" * user_name_chars_max, range(streams_per_look_max - 1)
    long = [f"{scope}/{number:0{user_name_chars_max}}" for number in others]
    async with session.get(f"/v1/window/live/streams?names={','.join(['shop/orders', *long])}") as answer:
        assert answer.status == 200, answer.reason
        [look] = cast(list[dict[str, object]], (await event_of(answer))["streams"])
        assert look["stream"] == "orders", "those that are gone are left out"


async def test_listeners_are_bounded_and_their_places_come_back(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "look_period_s", 0.01)
    monkeypatch.setattr(live, "listeners_max", 1)
    async with session.get(LIVE) as answer:
        await event_of(answer)
        async with session.get(LIVE) as refused:
            assert refused.status == 429

    async def has_room() -> bool:
        async with session.get(LIVE) as again:
            return again.status == 200

    await eventually(has_room, "a place for another listener")


async def test_a_listener_is_ended_after_a_while(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "listening_time_max_s", 0.05)
    async with session.get(LIVE) as answer:
        assert answer.status == 200
        await asyncio.wait_for(answer.content.read(), 10)


async def test_a_stream_that_goes_ends_its_look_with_the_reason(
    controller: Controller, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "look_period_s", 0.01)
    async with session.get(LIVE) as answer:
        await event_of(answer)
        await controller.parts.workflows.seal.seal("r1", "shop", "orders")
        await controller.parts.workflows.delete.delete("r2", "shop", "orders")
        assert b"event: failed\ndata: " in await asyncio.wait_for(answer.content.read(), 10)


async def test_a_stop_does_not_wait_for_listeners(parts: ControllerParts) -> None:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    await stream_with_history(parts, controller, "shop", "orders", 1, 1)
    assert controller.rest is not None
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{controller.rest.port}") as session,
        session.get(LIVE) as answer,
    ):
        await event_of(answer)
        # The server itself waits for open answers for longer than that.
        await asyncio.wait_for(controller.rest.on_stop(), 4.0)
    await controller.stop()


# ---- the page --------------------------------------------------------------------------------------------------------


async def test_the_page_is_small_and_needs_nothing_from_elsewhere(session: aiohttp.ClientSession) -> None:
    total = 0
    for path in PAGE_FILES:
        async with session.get(path) as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            text = await answer.text()
        total += len(text)
        elsewhere = set(re.findall(r"https?://[^\"' )>]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not elsewhere, path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        for linked in re.findall(r'(?:href|src|from) ?=? ?"((?:/|\./)[^"#]+)"', text):
            async with session.get(linked.replace("./", "/window/")) as answer:
                assert answer.status == 200, linked
    assert total < page_bytes_max


async def test_only_the_files_of_the_page_are_served(session: aiohttp.ClientSession) -> None:
    for path in ("/window/", "/window/nothing.js", "/window/../answers.py", "/window/%2e%2e/answers.py"):
        async with session.get(path) as answer:
            assert answer.status == 404, path
