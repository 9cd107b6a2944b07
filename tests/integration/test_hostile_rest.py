"""Attacks on a controller's REST port over real sockets: foreign web pages, peers that send nothing or half of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import structlog

from controller_service.api.rest import operation
from controller_service.api.rest.server import line_bytes_max
from controller_service.service import Controller
from pravega_common.services import http_connections
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually

SCOPE = b'{"scopeName": "s"}'
CREATE = "POST /v1/scopes"
answer_time_max_s = 20.0
per_peer_max = 8


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    parts = ControllerParts()
    made = parts.controller(
        rest="127.0.0.1:0",
        published="controller.example:9090",
        rest_hosts=("rest.example",),
        rest_connections_per_peer_max=per_peer_max,
    )
    await made.start()
    yield made
    await made.stop()


def port_of(controller: Controller) -> int:
    assert controller.rest is not None
    return controller.rest.port


async def ask(controller: Controller, request: str, *headers: str, body: bytes = b"") -> int:
    """The status of the answer to a request that is sent as it stands."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(controller))
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{request} HTTP/1.1", *headers, *length, "Connection: close", "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    try:
        async with asyncio.timeout(answer_time_max_s):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


def host(controller: Controller, name: str = "127.0.0.1") -> str:
    return f"Host: {name}:{port_of(controller)}"


@pytest.mark.parametrize("path", ["GET /v1/scopes", "GET /metrics", "GET /v1/health", "GET /docs", "GET /ping"])
async def test_only_own_names_are_served(controller: Controller, path: str) -> None:
    for name in ("127.0.0.1", "[::1]", "10.1.2.3", "localhost", "LocalHost.", "rest.example", "controller.example"):
        assert await ask(controller, path, host(controller, name)) in (200, 204), name
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "rest.example.evil", "[::1", ""):
        assert await ask(controller, path, host(controller, name or "x y")) in (400, 403), name
    assert await ask(controller, path, "Host: evil.example", host(controller)) in (400, 403)


async def test_pages_of_others_change_and_read_nothing(controller: Controller) -> None:
    json = "Content-Type: application/json"
    own = f"127.0.0.1:{port_of(controller)}"
    origins = ("http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:1", f"http://{own}.evil", "file://")
    for origin in origins:
        for request, body in ((CREATE, SCOPE), ("GET /v1/scopes", b""), ("DELETE /v1/scopes/s", b"")):
            assert await ask(controller, request, host(controller), f"Origin: {origin}", json, body=body) == 403, origin
    assert await controller.store.scope("s") is None
    assert await ask(controller, CREATE, host(controller), f"Origin: http://{own}", json, body=SCOPE) == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_is_json_or_refused(controller: Controller, kind: str) -> None:
    headers = [f"Content-Type: {kind}"] if kind else []
    assert await ask(controller, CREATE, host(controller), *headers, body=SCOPE) == 415
    assert await controller.store.scope("s") is None
    json = "Content-Type: application/json; charset=utf-8"
    assert await ask(controller, CREATE, host(controller), json, body=SCOPE) == 201


async def test_what_cannot_be_is_a_bad_request(controller: Controller) -> None:
    for path in ("/v1/scopes/a%00b", "/v1/scopes/s/streams/%00", "/v1/scopes/a%0d%0ab", "/v1/health/%01"):
        assert await ask(controller, f"GET {path}", host(controller)) == 400, path
    events = "/v1/scopes/s/streams/t/scaling-events"
    assert await ask(controller, f"GET {events}?from=%C2%B2&to=3", host(controller)) == 400
    for body in (b"[" * 100_000, b'{"scopeName":' + b'{"a":' * 50_000):
        json = "Content-Type: application/json"
        assert await ask(controller, CREATE, host(controller), json, body=body) == 400


async def test_what_is_no_http_is_answered_and_leaves_no_traceback(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger must not fill the log with tracebacks, one for each malformed request."""
    for request in ("GET /v1/scopes/a\udcdd", f"GET /ping?{'x' * line_bytes_max}", "G\0T /ping", "nonsense"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(controller))
        writer.write(f"{request} HTTP/1.1\r\n{host(controller)}\r\n\r\n".encode(errors="surrogateescape"))
        async with asyncio.timeout(answer_time_max_s):
            assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_origin_that_is_none_is_refused_and_leaves_no_traceback(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    """No browser sends one, and who does must not fill the log either."""
    for origin in ("http://[", "http://[::1", "http://[x]:1"):
        assert await ask(controller, "GET /ping", host(controller), f"Origin: {origin}") == 403, origin
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("Content-Encoding: gzip", b"no gzip"), ("Content-Encoding: deflate", b"\xff\xff\xff\xff")],
)
async def test_a_body_that_is_encoded_otherwise_than_said_is_a_bad_request(
    controller: Controller, caplog: pytest.LogCaptureFixture, encoding: str, body: bytes
) -> None:
    with structlog.testing.capture_logs() as logged:
        headers = (host(controller), "Content-Type: application/json", encoding)
        assert await ask(controller, CREATE, *headers, body=body) == 400
        assert await ask(controller, "GET /ping", *headers, body=body) == 200
    assert not [entry for entry in logged if entry["log_level"] in ("error", "warning")]
    assert not [record for record in caplog.records if record.exc_info]
    assert await controller.store.scope("s") is None


async def test_a_peer_that_leaves_within_its_body_leaves_no_error(controller: Controller) -> None:
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(controller))
            head = (
                f"{CREATE} HTTP/1.1",
                host(controller),
                "Content-Type: application/json",
                "Content-Length: 99",
                "",
                "",
            )
            writer.write("\r\n".join(head).encode() + SCOPE)
            await writer.drain()
            assert await ask(controller, "GET /ping", host(controller)) == 200
            writer.close()
            await writer.wait_closed()
        assert await ask(controller, "GET /ping", host(controller)) == 200
    assert not [entry for entry in logged if entry["log_level"] in ("error", "warning")]


async def test_a_head_that_does_not_end_costs_its_connection(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "head_time_max_s", 0.2)
    for sent in (b"", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n", b"GET /p"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(controller))
        writer.write(sent)
        async with asyncio.timeout(answer_time_max_s):
            try:
                assert await reader.read() == b"", sent
            except ConnectionResetError:
                pass
        writer.close()
    assert controller.rest is not None
    limits = controller.rest.limits
    await eventually(lambda: not limits.open_count, "no connection is counted any more")


async def test_a_body_that_does_not_come_is_given_up(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "body_time_max_s", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(controller))
    head = f"{CREATE} HTTP/1.1\r\n{host(controller)}\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n"
    writer.write(head.encode() + SCOPE[:5])
    async with asyncio.timeout(answer_time_max_s):
        assert (await reader.readline()).split()[1] == b"408"
    writer.close()


async def test_one_peer_takes_so_many_connections_and_no_more(controller: Controller) -> None:
    """And locks nobody out, the supervisor of a standalone least of all: what was silent for longest makes room."""
    opened = [await asyncio.open_connection("127.0.0.1", port_of(controller)) for _ in range(per_peer_max + 1)]
    assert controller.rest is not None
    limits = controller.rest.limits
    await eventually(lambda: limits.open_count == per_peer_max, "as many as there may be are counted")
    for place in range(per_peer_max + 1):
        assert await ask(controller, "GET /ping", host(controller)) == 200, place
    assert limits.refused_total == 0
    for _, writer in opened:
        writer.close()
    await eventually(lambda: not limits.open_count, "the end of the connections")


async def test_a_connection_that_is_used_may_stay_longer_than_a_head_may_take(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "head_time_max_s", 0.05)
    waited = asyncio.Event()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port_of(controller)}") as session:
        for _ in range(3):
            async with session.get("/ping") as answer:
                assert answer.status == 200
            asyncio.get_running_loop().call_later(0.1, waited.set)
            await waited.wait()
            waited.clear()
        assert controller.rest is not None and controller.rest.limits.open_count == 1
