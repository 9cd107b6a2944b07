"""Hosts whose calls are refused again and again: answers that refuse are held, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import grpc
import pytest

from controller_service.api import refused_calls
from controller_service.api.grpc.server import GrpcServer
from controller_service.api.refused_calls import RefusedCalls, burst_s, held_bytes_max, hold_max_s
from controller_service.api.rest.health import HealthRegistry
from controller_service.api.rest.server import RestServer
from pravega_common.errors import (
    AccessDenied,
    AuthenticationFailed,
    InvalidArgument,
    NotFound,
    PravegaError,
    Throttled,
)
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import (
    ControllerServiceServicer,
    ControllerServiceStub,
    add_ControllerServiceServicer_to_server,
)
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.grpc_requests import raw_call

HOST = "127.0.0.1"
PER_S = 10
REFUSED = {
    "anonymous": (AuthenticationFailed, grpc.StatusCode.UNAUTHENTICATED),
    "denied": (AccessDenied, grpc.StatusCode.PERMISSION_DENIED),
    "invalid": (InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
}
NOT_REFUSED = {
    "missing": (NotFound, grpc.StatusCode.NOT_FOUND),
    "busy": (Throttled, grpc.StatusCode.RESOURCE_EXHAUSTED),
}
ERRORS: dict[str, tuple[type[PravegaError], grpc.StatusCode]] = {**REFUSED, **NOT_REFUSED}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def refused(clock: ManualClock) -> RefusedCalls:
    return RefusedCalls(clock, PER_S)


def use_up(refused: RefusedCalls, host: str = HOST) -> None:
    refused._shares.note(host, int(PER_S * burst_s))


async def ends_only_with_time(work: Awaitable[Any], refused: RefusedCalls, clock: ManualClock) -> Any:
    """The result of what is held until the clock is moved."""
    task = asyncio.ensure_future(work)
    await eventually(lambda: refused.held_count > 0, "the answer is held")
    assert not task.done()
    await clock.advance(hold_max_s)
    return await task


# ---- the share -------------------------------------------------------------------------------------------------------


async def test_refusals_beyond_the_share_of_a_host_are_answered_at_its_rate(
    refused: RefusedCalls, clock: ManualClock
) -> None:
    use_up(refused)
    held = [asyncio.ensure_future(refused.hold(HOST)) for _ in range(3)]
    await asyncio.sleep(0)
    await refused.hold("another host")
    assert refused.held_count == 3
    for answered in range(1, 4):
        await clock.advance(1.001 / PER_S)
        assert sum(one.done() for one in held) == answered
    assert refused.held_count == 0


async def test_no_answer_is_held_longer_than_the_limit(refused: RefusedCalls, clock: ManualClock) -> None:
    held = [asyncio.ensure_future(refused.hold(HOST)) for _ in range(500)]
    await asyncio.sleep(0)
    await clock.advance(hold_max_s)
    assert all(one.done() for one in held)


async def test_answers_that_are_held_are_bounded(refused: RefusedCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_calls, "held_per_peer_max", 5)
    monkeypatch.setattr(refused_calls, "held_max", 8)
    bounded = RefusedCalls(ManualClock(), PER_S)
    work = []
    for host in ("a", "b", "c"):
        use_up(bounded, host)
        work += [asyncio.ensure_future(bounded.hold(host)) for _ in range(20)]
        await asyncio.sleep(0)
    assert bounded.held_count == 8
    assert sum(one.done() for one in work) == 60 - 8, "the others are answered at once"
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    assert bounded.held_count == 0


async def test_the_requests_that_are_held_are_bounded_in_bytes(refused: RefusedCalls, clock: ManualClock) -> None:
    use_up(refused)
    work = [asyncio.ensure_future(refused.hold(HOST, held_bytes_max // 4)) for _ in range(10)]
    await asyncio.sleep(0)
    assert (refused.held_count, refused.held_bytes) == (4, held_bytes_max)
    await clock.advance(hold_max_s)
    await asyncio.gather(*work)
    assert refused.held_bytes == 0


# ---- gRPC ------------------------------------------------------------------------------------------------------------


class Service(ControllerServiceServicer):
    """Refuses to make scopes for the reason that is their name, and answers about streams."""

    async def createScope(self, request: Any, context: Any) -> Any:
        raise ERRORS[request.scope][0](request.scope)

    async def checkStreamExists(self, request: Any, context: Any) -> pb.ExistsResponse:
        return pb.ExistsResponse(exists=True)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def server(service: Service, refused: RefusedCalls) -> AsyncIterator[GrpcServer]:
    added = [lambda made: add_ControllerServiceServicer_to_server(service, made)]
    made = GrpcServer("127.0.0.1:0", added, refused=refused)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def stub(server: GrpcServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield ControllerServiceStub(channel)


async def status(stub: Any, reason: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.createScope(pb.ScopeInfo(scope=reason), timeout=20)
    return raised.value.code()


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_refused_call_is_held_and_gets_its_own_status(
    server: GrpcServer, stub: Any, refused: RefusedCalls, clock: ManualClock, reason: str
) -> None:
    assert await status(stub, reason) is REFUSED[reason][1], "the first ones wait for nothing"
    use_up(refused)
    assert await ends_only_with_time(status(stub, reason), refused, clock) is REFUSED[reason][1]


async def test_what_is_no_message_is_held(
    stub: Any, server: GrpcServer, refused: RefusedCalls, clock: ManualClock
) -> None:
    use_up(refused)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = raw_call(channel, "/io.pravega.controller.stream.api.grpc.v1.ControllerService/createScope")

        async def send() -> grpc.StatusCode:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"\xff\xff", timeout=20)
            return raised.value.code()

        assert await ends_only_with_time(send(), refused, clock) is grpc.StatusCode.INVALID_ARGUMENT


async def test_good_calls_of_the_host_are_answered_meanwhile(
    server: GrpcServer, stub: Any, refused: RefusedCalls, clock: ManualClock
) -> None:
    use_up(refused)
    held = [asyncio.ensure_future(status(stub, "denied")) for _ in range(20)]
    await eventually(lambda: refused.held_count == 20)
    assert refused.held_bytes == 20 * pb.ScopeInfo(scope="denied").ByteSize()
    assert server.counts.calls.total == 0, "what is held is not in progress: others find room"
    for _ in range(50):
        assert (await stub.checkStreamExists(pb.StreamInfo(scope="s", stream="t"), timeout=20)).exists
    assert refused.held_count == 20
    await clock.advance(hold_max_s)
    assert set(await asyncio.gather(*held)) == {grpc.StatusCode.PERMISSION_DENIED}


@pytest.mark.parametrize("reason", NOT_REFUSED)
async def test_what_is_refused_for_what_there_is_waits_for_nothing(
    stub: Any, refused: RefusedCalls, reason: str
) -> None:
    use_up(refused)
    for _ in range(20):
        assert await status(stub, reason) is NOT_REFUSED[reason][1]


async def test_a_caller_that_goes_is_held_no_longer(stub: Any, refused: RefusedCalls) -> None:
    use_up(refused)
    with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
        await stub.createScope(pb.ScopeInfo(scope="denied"), timeout=0.2)
    await eventually(lambda: refused.held_count == 0)


# ---- REST ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def session(refused: RefusedCalls) -> AsyncIterator[aiohttp.ClientSession]:
    controller = ControllerParts().controller()
    made = RestServer(
        "127.0.0.1:0",
        HealthRegistry(controller.judge),
        controller.parts,
        controller.window_parts(),
        controller.watermark_ages,
        refused=refused,
    )
    await made.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{made.port}") as opened:
        yield opened
    await made.stop()


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("POST", "/v1/scopes", {"json": {"scopeName": "a/b"}}, 400),
        ("POST", "/v1/scopes", {"data": b"{}"}, 415),
        ("GET", "/v1/scopes", {"headers": {"Host": "evil.example"}}, 403),
        ("PATCH", "/v1/scopes", {}, 405),
        ("GET", "/nothing/there", {}, 404),
    ],
)
async def test_a_refused_request_is_held_and_gets_its_own_status(
    session: aiohttp.ClientSession,
    refused: RefusedCalls,
    clock: ManualClock,
    method: str,
    path: str,
    options: dict[str, Any],
    status: int,
) -> None:
    async def send() -> int:
        async with session.request(method, path, **options) as answer:
            return answer.status

    assert await send() == status, "the first ones wait for nothing"
    use_up(refused)
    assert await ends_only_with_time(send(), refused, clock) == status


async def test_good_requests_and_missing_things_wait_for_nothing(
    session: aiohttp.ClientSession, refused: RefusedCalls
) -> None:
    use_up(refused)
    for path, status in (("/ping", 200), ("/v1/scopes/missing", 404)):
        async with session.get(path) as answer:
            assert answer.status == status
    assert refused.held_count == 0


async def test_both_interfaces_of_a_controller_share_the_counts(parts: ControllerParts) -> None:
    controller = parts.controller(rest="127.0.0.1:0")
    assert controller.rest is not None
    assert controller.grpc.refused is controller.refused is controller.rest.refused


@pytest.fixture
def parts() -> ControllerParts:
    return ControllerParts()
