"""The OpenAPI document is whole, describes every route, and every recorded call is answered as it says."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from controller_service.api.rest.bodies import RestBody
from controller_service.api.rest.health import HealthRegistry
from controller_service.api.rest.openapi import OPENAPI_VERSION, document
from controller_service.api.rest.operation import RestOperation
from controller_service.api.rest.server import EXPLORER_FILES, RestServer, all_operations
from controller_service.service import Controller
from controller_service.window.page_routes import PAGE_FILES
from pravega_common.errors import ConfigurationError
from pravega_common.invariants import InvariantViolation
from tests.support.controller_in_memory import ControllerParts
from tests.support.repository import TRANSCRIPTS

NOT_DESCRIBED = {"/openapi.json", "/metrics", *EXPLORER_FILES, *PAGE_FILES}
"""The description itself, and what is not JSON."""
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def serving(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    yield controller
    await controller.stop()


@pytest.fixture
async def session(serving: Controller) -> AsyncIterator[aiohttp.ClientSession]:
    assert serving.rest is not None
    async with aiohttp.ClientSession(f"http://127.0.0.1:{serving.rest.port}") as opened:
        yield opened


@pytest.fixture
async def api(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get("/openapi.json") as answer:
        assert answer.status == 200 and answer.content_type == "application/json"
        found: dict[str, Any] = await answer.json()
        return found


def operations_of(api: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def values_of(node: Any, key: str) -> Iterator[Any]:
    """The values under a key anywhere in a document."""
    for name, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name == key:
            yield child
        yield from values_of(child, key)


# ---- the document ----------------------------------------------------------------------------------------------------


def test_it_is_an_openapi_document(api: dict[str, Any]) -> None:
    assert api["openapi"] == OPENAPI_VERSION
    assert api["info"]["title"] and api["info"]["version"]
    ids = [operation["operationId"] for _, _, operation in operations_of(api)]
    assert len(ids) == len(set(ids)) > 20
    for method, path, operation in operations_of(api):
        assert method in {"get", "put", "post", "delete"}
        assert operation["summary"] and operation["tags"]
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path)), path
        assert all(one["required"] for one in operation["parameters"] if one["in"] == "path")
        assert all(re.fullmatch(r"[1-5]\d\d", status) for status in operation["responses"])
        assert all(answer["description"] for answer in operation["responses"].values())


def test_each_reference_resolves_and_each_schema_is_used(api: dict[str, Any]) -> None:
    schemas = api["components"]["schemas"]
    used = {reference.removeprefix("#/components/schemas/") for reference in values_of(api, "$ref")}
    assert used == set(schemas)
    assert not list(values_of(api, "$defs"))


def test_every_route_is_described(serving: Controller, api: dict[str, Any]) -> None:
    assert serving.rest is not None
    routes = {
        (route.method.lower(), route.resource.canonical)
        for route in serving.rest.application().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = {(method, path) for method, path, _ in operations_of(api)}
    assert {(method, path) for method, path in routes if path not in NOT_DESCRIBED} == described


def test_bodies_have_the_names_of_the_api(api: dict[str, Any]) -> None:
    create = api["paths"]["/v1/scopes/{scope}/streams"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert create == {"$ref": "#/components/schemas/CreateStreamRequest"}
    wanted = api["components"]["schemas"]["CreateStreamRequest"]
    assert set(wanted["required"]) == {"streamName", "scalingPolicy"}
    assert wanted["properties"].keys() == {
        "streamName",
        "scalingPolicy",
        "retentionPolicy",
        "streamTags",
        "timestampAggregationTimeout",
        "rolloverSizeBytes",
    }
    span = api["paths"]["/v1/scopes/{scope}/streams/{stream}/scaling-events"]["get"]["parameters"]
    assert {(one["name"], one["required"]) for one in span if one["in"] == "query"} == {("from", True), ("to", True)}


# ---- answers ---------------------------------------------------------------------------------------------------------


def operation_for(operations: Iterable[RestOperation], method: str, path: str) -> RestOperation:
    """The operation whose route takes a call, by the order of the routes."""
    bare = path.partition("?")[0]
    for operation in operations:
        pattern = re.sub(r"\{\w+\}", "[^/]+", operation.path)
        if operation.method == method and re.fullmatch(pattern, bare):
            return operation
    raise AssertionError(f"no operation for {method} {path}")


async def test_recorded_calls_are_answered_as_described(
    serving: Controller, session: aiohttp.ClientSession, api: dict[str, Any]
) -> None:
    assert serving.rest is not None
    called = set()
    for line in (TRANSCRIPTS / "probe-rest.http.jsonl").read_text().splitlines():
        call = json.loads(line)
        operation = operation_for(serving.rest.operations, call["method"], call["path"])
        async with session.request(call["method"], call["path"], json=call["request"]) as answer:
            content, status = await answer.read(), answer.status
        described = api["paths"][operation.path][operation.method.lower()]["responses"]
        assert str(status) in described, (call["method"], call["path"], status)
        assert status != 500 or call["status"] == 500, call["path"]
        assert bool(content) == ("content" in described[str(status)]), call["path"]
        if content:
            assert operation.answer is not None
            for item in json.loads(content) if operation.gives_items else [json.loads(content)]:
                operation.answer.validate_json(json.dumps(item))
        called.add((operation.method, operation.path))
    assert len(called) > 15


def test_an_answer_that_differs_from_its_description_is_found() -> None:
    controller = ControllerParts().controller()
    operations = all_operations(HealthRegistry(), controller.parts, controller.window_parts())
    scopes = operation_for(operations, "GET", "/v1/scopes")
    assert scopes.answer is not None
    with pytest.raises(ValidationError):
        scopes.answer.validate_json(b'{"scopes": [{"name": "s"}]}')


# ---- handlers --------------------------------------------------------------------------------------------------------


class Named(RestBody):
    some_name: str


def test_the_document_follows_the_handler() -> None:
    async def handle(thing: str, body: Named) -> Named:
        return body

    described = document([RestOperation("PUT", "/v1/things/{thing}", "Names a thing.", handle, (409,), tag="things")])
    operation = described["paths"]["/v1/things/{thing}"]["put"]
    assert operation["operationId"] == "put_v1_things_thing"
    assert operation["responses"].keys() == {"200", "409", "413", "500"}
    assert described["components"]["schemas"]["Named"]["properties"].keys() == {"someName"}


def test_a_handler_takes_what_its_path_names() -> None:
    async def handle(other: str) -> None: ...

    with pytest.raises(InvariantViolation, match="thing"):
        RestOperation("GET", "/v1/things/{thing}", "Finds a thing.", handle)


# ---- refusals --------------------------------------------------------------------------------------------------------

SCALING = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
        (b"[]", "the body"),
        (b'{"streamName": "n"}', "scalingPolicy: Field required"),
        (json.dumps({"streamName": 1, "scalingPolicy": SCALING}).encode(), "streamName"),
        (json.dumps({"streamName": "n", "scalingPolicy": SCALING, "tags": []}).encode(), "tags: Extra inputs"),
        (json.dumps({"streamName": "n", "scalingPolicy": {**SCALING, "minSegments": 0}}).encode(), "minSegments"),
        (json.dumps({"streamName": "n", "scalingPolicy": {**SCALING, "minSegments": "1"}}).encode(), "minSegments"),
        (json.dumps({"streamName": "n", "scalingPolicy": {**SCALING, "minSegments": True}}).encode(), "minSegments"),
        (json.dumps({"streamName": "n", "scalingPolicy": {**SCALING, "type": "\n\0é"}}).encode(), "scalingPolicy.type"),
        (json.dumps({"streamName": "n", "scalingPolicy": SCALING, "streamTags": [1]}).encode(), "streamTags.0"),
    ],
)
async def test_malformed_bodies_are_refused_with_the_place(
    session: aiohttp.ClientSession, content: bytes, reason: str
) -> None:
    async with session.post("/v1/scopes/_system/streams", data=content, headers=JSON) as answer:
        assert answer.status == 400
        assert reason in (answer.reason or "")
        assert await answer.read() == b""


async def test_malformed_queries_are_refused(session: aiohttp.ClientSession) -> None:
    for query in ("", "from=1", "from=1&to=²", "from=-1&to=1", "from=a&to=b", f"from=0&to={'9' * 5_000}"):
        async with session.get(f"/v1/scopes/_system/streams/none/scaling-events?{query}") as answer:
            assert answer.status == 400, query
    async with session.get("/v1/scopes/_system/streams?filter_type=no") as answer:
        assert answer.status == 400 and "filter_type" in (answer.reason or "")


async def test_a_quota_is_set_held_and_shown(session: aiohttp.ClientSession) -> None:
    quota = "/v1/scopes/s/quota"
    async with session.put(quota, json={"streams": 1}) as answer:
        assert answer.status == 404
    async with session.post("/v1/scopes", json={"scopeName": "s"}) as answer:
        assert answer.status == 201
    async with session.get(quota) as answer:
        assert await answer.json() == {"limits": {}}
    for body in ({"streams": -1}, {"segments": 10**9 + 1}, {"bytes": 1}, {"streams": "1"}, {"bytesIn": 0}):
        async with session.put(quota, json=body) as answer:
            assert answer.status == 400
    async with session.put(quota, json={"streams": 1, "segments": 3, "bytesIn": 70_000}) as answer:
        assert answer.status == 200
    for name, status in (("a", 201), ("b", 403), ("a", 409)):
        async with session.post("/v1/scopes/s/streams", json={"streamName": name, "scalingPolicy": SCALING}) as answer:
            assert answer.status == status
            assert status != 403 or "its quota is 1" in (answer.reason or "")
    async with session.get(quota) as answer:
        assert await answer.json() == {
            "limits": {"streams": 1, "segments": 3, "bytesIn": 70_000},
            "used": {"streams": 1, "segments": 1},
        }


async def test_a_body_without_end_is_refused(session: aiohttp.ClientSession) -> None:
    async with session.post("/v1/scopes", data=b" " * 2_000_000, headers=JSON) as answer:
        assert answer.status == 413


async def test_a_bug_in_a_handler_is_an_answer_without_a_trace() -> None:
    async def handle() -> None:
        raise ZeroDivisionError("secret")

    controller = ControllerParts().controller()
    server = RestServer(
        "127.0.0.1:0", HealthRegistry(), controller.parts, controller.window_parts(), controller.watermark_ages
    )
    server.operations = (RestOperation("GET", "/v1/broken", "Fails.", handle),)
    await server.start()
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
            session.get("/v1/broken") as answer,
        ):
            assert answer.status == 500
            assert "secret" not in str(answer.raw_headers) + (answer.reason or "") + await answer.text()
    finally:
        await server.stop()


async def test_a_taken_port_is_named_with_its_setting() -> None:
    controller = ControllerParts().controller()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = RestServer(
            address, HealthRegistry(), controller.parts, controller.window_parts(), controller.watermark_ages
        )
        with pytest.raises(ConfigurationError, match=f"rest = '{address}': cannot listen there"):
            await server.start()


# ---- the page --------------------------------------------------------------------------------------------------------


async def test_the_page_needs_nothing_from_elsewhere(session: aiohttp.ClientSession) -> None:
    for path in EXPLORER_FILES:
        async with session.get(path) as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy, "no page of others may lay itself over the buttons that change"
            text = await answer.text()
        assert "//" not in re.sub(r"^// .*$", "", text, flags=re.MULTILINE), path
        for linked in re.findall(r'(?:href|src)="([^"]+)"', text):
            async with session.get(linked) as answer:
                assert answer.status == 200, linked
