"""Authentication and authorisation of a whole controller: every call, both ways in."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from controller_service.api.grpc.method_access import METHODS
from controller_service.api.refused_calls import refusals_per_peer_per_s_default
from controller_service.api.rest import window
from controller_service.api.rest.access_guard import NEEDS, OPEN
from controller_service.service import Controller
from controller_service.store.records import Key
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.proto import (
    cluster_health_pb2,
    commit_operations_pb2,
    controller_pb2,
    scope_quotas_pb2,
    stream_lags_pb2,
    transaction_sets_pb2,
)
from pravega_common.proto import controller_pb2 as pb
from pravega_common.resources import Permission
from pravega_common.services.security import authentication
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.cluster_keys import ClusterKeys, make_key_file
from pravega_common.services.security.password_file import HashedPassword, User, changing_users, write_users
from pravega_streams.controller import transport
from pravega_streams.controller.client import ControllerClient
from pravega_streams.credentials import BasicCredentials
from tests.support.controller_in_memory import ControllerParts
from tests.support.grpc_requests import request_of
from tests.support.security import tokens_of

SERVICES = [
    *controller_pb2.DESCRIPTOR.services_by_name.values(),
    *transaction_sets_pb2.DESCRIPTOR.services_by_name.values(),
    *scope_quotas_pb2.DESCRIPTOR.services_by_name.values(),
    *cluster_health_pb2.DESCRIPTOR.services_by_name.values(),
    *stream_lags_pb2.DESCRIPTOR.services_by_name.values(),
    *commit_operations_pb2.DESCRIPTOR.services_by_name.values(),
]
CALLS = [(service, method) for service in SERVICES for method in service.methods]
USERS = {
    "admin": "prn::*,READ_UPDATE",
    "writer": "prn::/scope:s/stream:t,READ_UPDATE",
    "reader": "prn::/scope:s/stream:t,READ;prn::/scope:s/reader-group:g,READ",
    "lister": "prn::/scope:s,READ;prn::/scope:s/stream:u,READ",
    "keeper": "prn::/scope:s/key-value-table:kv,READ_UPDATE",
    "looker": "prn::/scope:s/key-value-table:kv,READ",
    "nothing": "",
}
PASSWORD = "planted-secret-77aa"
OK, DENIED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def header(user: str, password: str = PASSWORD) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@dataclass
class Closed:
    controller: Controller
    channel: grpc.aio.Channel
    keys: ClusterKeys

    async def call(self, user: str | None, service: Any, method: Any, request: Any) -> tuple[grpc.StatusCode, Any]:
        stub: Any = self.channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=method.output_type._concrete_class.FromString,
        )
        metadata = None if user is None else (("authorization", header(user)),)
        try:
            return OK, await stub(request, timeout=10, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            assert PASSWORD not in str(error.details())
            return error.code(), error.details()

    async def ask(self, user: str | None, method: str, request: Any) -> tuple[grpc.StatusCode, Any]:
        service = SERVICES[0]
        return await self.call(user, service, service.methods_by_name[method], request)

    async def get(self, user: str | None, path: str, method: str = "GET", **given: Any) -> tuple[int, Any]:
        assert self.controller.rest is not None
        headers = {} if user is None else {"Authorization": header(user)}
        url = f"http://127.0.0.1:{self.controller.rest.port}{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers, **given) as answer:
            body = await answer.json() if answer.content_type == "application/json" else None
            return answer.status, body


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    keys, users = tmp_path / "cluster.keys", tmp_path / "users"
    make_key_file(keys)
    hashed = HashedPassword.of(PASSWORD.encode())
    write_users(users, {name: User(name, hashed, AccessEntries.parse(text)) for name, text in USERS.items()})
    security = {"cluster_key_file": str(keys), "authentication": True, "password_file": str(users)}
    log = {"audit_file": str(tmp_path / "audit.jsonl")}
    controller = ControllerParts().controller(rest="127.0.0.1:0", security=security, log=log)
    await controller.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        made = Closed(controller, channel, ClusterKeys.read(keys))
        assert (await made.ask("admin", "createScope", pb.ScopeInfo(scope="s")))[0] is OK
        for stream in ("t", "u"):
            configuration = pb.StreamConfig(
                streamInfo=pb.StreamInfo(scope="s", stream=stream),
                scalingPolicy=pb.ScalingPolicy(scaleType=pb.ScalingPolicy.FIXED_NUM_SEGMENTS, minNumSegments=1),
            )
            assert (await made.ask("admin", "createStream", configuration))[0] is OK
        yield made
    await controller.stop()


def test_every_call_says_what_it_needs() -> None:
    assert set(METHODS) == {f"/{service.full_name}/{method.name}" for service, method in CALLS}


async def test_no_call_is_served_without_credentials(closed: Closed) -> None:
    for service, method in CALLS:
        request = request_of(method)
        assert (await closed.call(None, service, method, request))[0] is UNKNOWN, method.name


async def test_who_has_no_permission_is_refused_every_call_about_something(closed: Closed) -> None:
    for service, method in CALLS:
        if method.name in ("getControllerServerList", "listScopes"):
            continue
        request = request_of(method)
        if method.name == "getDelegationToken":
            request.scope = "s"
        if "sink" in request.DESCRIPTOR.fields_by_name:
            request.sink.destination = "s/*"
        if "streams" in request.DESCRIPTOR.fields_by_name:
            request.streams.add(scope="s", stream="t")
        assert (await closed.call("nothing", service, method, request))[0] is DENIED, method.name


async def test_a_slow_call_goes_on_while_others_of_its_host_are_refused(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client asks whether a silent controller answers at all: no refusal, whose answer would be held."""
    assert (await closed.ask("nothing", "getDelegationToken", pb.StreamInfo())) == (OK, pb.DelegationToken())
    assert (await closed.ask(None, "getDelegationToken", pb.StreamInfo()))[0] is UNKNOWN

    found = StreamStore.open

    async def slow(self: StreamStore, scope: str, stream: str, *keys: Key[Any]) -> StreamContext:
        # Time is the subject: the call outlasts the client's silence and its question together.
        await asyncio.sleep(1.5)
        return await found(self, scope, stream, *keys)

    monkeypatch.setattr(StreamStore, "open", slow)
    monkeypatch.setattr(transport, "probe_time_max_s", 0.5)
    closed.controller.grpc.refused._shares.note("127.0.0.1", 10 * refusals_per_peer_per_s_default)
    address = f"tcp://127.0.0.1:{closed.controller.grpc.port}"
    client = ControllerClient(address, attempts=1, silence_s=0.2, credentials=BasicCredentials("reader", PASSWORD))
    assert await asyncio.to_thread(client.stream_exists, "s", "t")
    client.close()


@pytest.mark.parametrize(
    ("user", "method", "status"),
    [
        ("reader", "getCurrentSegments", OK),
        ("reader", "getSegments", OK),
        ("reader", "sealStream", DENIED),
        ("reader", "createTransaction", DENIED),
        ("writer", "createTransaction", OK),
        ("writer", "getStreamConfiguration", OK),
        ("lister", "getStreamConfiguration", DENIED),
        ("admin", "getStreamConfiguration", OK),
    ],
)
async def test_each_user_may_do_what_the_entries_say(
    closed: Closed, user: str, method: str, status: grpc.StatusCode
) -> None:
    info = pb.StreamInfo(scope="s", stream="t")
    requests = {
        "getSegments": pb.GetSegmentsRequest(streamInfo=info),
        "createTransaction": pb.CreateTxnRequest(streamInfo=info, lease=30_000),
    }
    assert (await closed.ask(user, method, requests.get(method, info)))[0] is status


@pytest.mark.parametrize(
    ("user", "stream", "granted"),
    [
        ("reader", "t", {"prn::/scope:s/stream:t": Permission.READ}),
        ("writer", "t", {"prn::/scope:s/stream:t": Permission.READ_UPDATE}),
        ("reader", "_MARKt", {"prn::/scope:s/stream:t": Permission.READ}),
        # Who reads a group writes its state.
        ("reader", "_RGg", {"prn::/scope:s/reader-group:g": Permission.READ_UPDATE}),
        ("admin", "never-made_kvtable", {"prn::/scope:s/key-value-table:never-made": Permission.READ_UPDATE}),
        # Java asks for a table's token by its name alone, as if it were a stream's.
        ("keeper", "kv", {"prn::/scope:s/key-value-table:kv": Permission.READ_UPDATE}),
        ("looker", "kv", {"prn::/scope:s/key-value-table:kv": Permission.READ}),
        (
            "admin",
            "kv",
            {
                "prn::/scope:s/stream:kv": Permission.READ_UPDATE,
                "prn::/scope:s/key-value-table:kv": Permission.READ_UPDATE,
            },
        ),
    ],
)
async def test_a_token_has_exactly_what_the_user_may(
    closed: Closed, user: str, stream: str, granted: dict[str, Permission]
) -> None:
    status, answer = await closed.ask(user, "getDelegationToken", pb.StreamInfo(scope="s", stream=stream))
    assert status is OK
    verified = tokens_of(keys=closed.keys).verify(answer.delegationToken)
    assert (verified.subject, verified.is_internal, dict(verified.permissions)) == (user, False, granted)


async def test_answers_carry_tokens_unless_none_is_wanted(closed: Closed) -> None:
    info = pb.StreamInfo(scope="s", stream="t")
    _, answer = await closed.ask("reader", "getCurrentSegments", info)
    assert tokens_of(keys=closed.keys).verify(answer.delegationToken).subject == "reader"
    info.accessOperation = pb.StreamInfo.NONE
    assert (await closed.ask("reader", "getCurrentSegments", info))[1].delegationToken == ""
    info.accessOperation = pb.StreamInfo.WRITE
    assert (await closed.ask("reader", "getDelegationToken", info))[0] is DENIED
    assert (await closed.ask("writer", "getDelegationToken", info))[0] is OK


async def test_the_token_of_a_table_is_for_what_its_user_asks(closed: Closed) -> None:
    """As Java does, which reads and writes every table that it opens."""
    info = pb.StreamInfo(scope="s", stream="kv", accessOperation=pb.StreamInfo.READ_WRITE)
    assert (await closed.ask("keeper", "getDelegationToken", info))[0] is OK
    for user in ("looker", "writer", "nothing"):
        assert (await closed.ask(user, "getDelegationToken", info))[0] is DENIED, user
    assert (await closed.ask("keeper", "getCurrentSegments", pb.StreamInfo(scope="s", stream="kv")))[0] is DENIED


async def test_lists_show_what_one_may_read(closed: Closed) -> None:
    async def names(user: str) -> tuple[list[str], list[str] | None]:
        _, scopes = await closed.ask(user, "listScopes", pb.ScopesRequest())
        request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="s"))
        status, streams = await closed.ask(user, "listStreamsInScope", request)
        return list(scopes.scopes), [item.stream for item in streams.streams] if status is OK else None

    scopes, streams = await names("admin")
    assert "s" in scopes and {"t", "u"} <= set(streams or ())
    assert await names("lister") == (["s"], ["_MARKu", "u"])
    assert await names("nothing") == ([], None)


async def test_only_administrators_decide_about_blocked_streams(closed: Closed) -> None:
    service = SERVICES[-1]
    for name in ("GiveUpTransaction", "AcceptLoss"):
        method = service.methods_by_name[name]
        request = request_of(method, scope="s", stream="t")
        assert (await closed.call("writer", service, method, request))[0] is DENIED
        assert (await closed.call("admin", service, method, request))[0] is not DENIED


async def test_only_administrators_list_and_forget_sinks_and_ask_without_the_secret(closed: Closed) -> None:
    service = SERVICES[1]
    own = transaction_sets_pb2.Sink(query_id="q", destination="s/t", secret=b"m" * 32)

    async def call(user: str, name: str, sink: transaction_sets_pb2.Sink | None) -> grpc.StatusCode:
        method = service.methods_by_name[name]
        given: dict[str, Any] = {} if sink is None else {"sink": sink}
        if name == "CommitTransactionSet":
            given["run_id"] = user
        return (await closed.call(user, service, method, request_of(method, **given)))[0]

    assert await call("writer", "CommitTransactionSet", own) is OK
    bare = transaction_sets_pb2.Sink(query_id="q", destination="s/t")
    assert await call("writer", "GetTransactionSet", own) is OK
    assert await call("writer", "GetTransactionSet", bare) is DENIED
    assert await call("admin", "GetTransactionSet", bare) is OK
    # The secret is of the query's runs, and not of who may write to its stream, or to all.
    assert await call("admin", "CommitTransactionSet", bare) is DENIED
    assert await call("reader", "CommitTransactionSet", own) is DENIED
    assert await call("writer", "ListSinks", None) is DENIED
    assert await call("admin", "ListSinks", None) is OK
    assert await call("writer", "ForgetSink", own) is DENIED
    assert await call("admin", "ForgetSink", bare) is OK


@pytest.mark.parametrize("continuation", ["é", "a", "!!!!", "A" * 5_000])
async def test_a_continuation_of_sinks_that_nobody_gave_out_is_refused(closed: Closed, continuation: str) -> None:
    request = transaction_sets_pb2.ListSinksRequest(continuation=continuation)
    method = SERVICES[1].methods_by_name["ListSinks"]
    status, reason = await closed.call("admin", SERVICES[1], method, request)
    assert status is grpc.StatusCode.INVALID_ARGUMENT and "continuation" in reason


async def test_only_administrators_set_quotas(closed: Closed) -> None:
    service, limits = scope_quotas_pb2.DESCRIPTOR.services_by_name["ScopeQuotas"], scope_quotas_pb2.ScopeLimits

    async def call(user: str, name: str, **given: Any) -> tuple[grpc.StatusCode, Any]:
        method = service.methods_by_name[name]
        return await closed.call(user, service, method, request_of(method, scope="s", **given))

    assert (await call("writer", "SetScopeQuota", limits=limits(streams=5)))[0] is DENIED
    assert (await closed.get("writer", "/v1/scopes/s/quota", "PUT", json={}))[0] == 403
    assert (await call("admin", "SetScopeQuota", limits=limits(streams=2)))[0] is OK
    status, found = await call("admin", "GetScopeQuota")
    assert status is OK and (found.limits.streams, found.limits.HasField("segments")) == (2, False)
    assert (found.counted, found.streams, found.segments) == (True, 2, 2)
    info = pb.StreamInfo(scope="s", stream="more")
    policy = pb.ScalingPolicy(scaleType=pb.ScalingPolicy.FIXED_NUM_SEGMENTS, minNumSegments=1)
    refused, reason = await closed.ask("admin", "createStream", pb.StreamConfig(streamInfo=info, scalingPolicy=policy))
    assert refused is grpc.StatusCode.INVALID_ARGUMENT
    assert "scope s would have 3 streams (it has 2), its quota is 2" in reason


async def test_only_readers_of_all_are_told_how_the_cluster_is(closed: Closed) -> None:
    service = cluster_health_pb2.DESCRIPTOR.services_by_name["ClusterHealth"]
    method, request = service.methods_by_name["DescribeCluster"], cluster_health_pb2.DescribeClusterRequest()
    assert (await closed.call("writer", service, method, request))[0] is DENIED
    status, found = await closed.call("admin", service, method, request)
    assert status is OK and list(found.problems) == [] and found.container_count > 0
    assert [store.address for store in found.stores] != []


async def test_the_lag_of_a_stream_is_told_to_who_may_read_it(closed: Closed) -> None:
    service = stream_lags_pb2.DESCRIPTOR.services_by_name["StreamLags"]
    method, made = service.methods_by_name["DescribeLags"], stream_lags_pb2.DescribeLagsRequest

    async def ask(user: str, *streams: str) -> tuple[grpc.StatusCode, Any]:
        named = [stream_lags_pb2.LagStream(scope="s", stream=stream) for stream in streams]
        return await closed.call(user, service, method, made(streams=named))

    status, found = await ask("reader", "t")
    assert status is OK and [one.stream.stream for one in found.streams] == ["t"]
    assert (await ask("reader", "t", "u"))[0] is DENIED
    assert (await ask("lister", "t"))[0] is DENIED
    assert (await ask("admin", *(f"stream{index}" for index in range(51))))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_rest_request_is_open_or_says_what_it_needs(closed: Closed) -> None:
    assert closed.controller.rest is not None
    routes = {
        (route.method, route.resource.canonical)
        for route in closed.controller.rest.application().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == OPEN | set(NEEDS)
    for method, path in sorted(NEEDS):
        assert (await closed.get(None, path, method))[0] == 401, path
        if path != "/v1/scopes" or method != "GET":
            assert (await closed.get("nothing", path, method))[0] == 403, path
    assert (await closed.get(None, "/ping"))[0] == 200
    assert (await closed.get(None, "/v1/health/readiness"))[0] in (200, 503)
    assert (await closed.get("nothing", "/no/such/path"))[0] == 403


def detailed(health: dict[str, Any]) -> list[str]:
    """The parts, and "" for the whole, whose details are told."""
    below = [name for child in health["children"].values() for name in detailed(child)]
    return [health["name"], *below] if health["details"] else below


@pytest.mark.parametrize("entries", ["prn::/scope:s,READ", None], ids=["without the permission", "without the user"])
async def test_a_live_answer_ends_with_the_permission_to_listen(
    closed: Closed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str | None
) -> None:
    monkeypatch.setattr(window, "look_period_s", 0.01)
    monkeypatch.setattr(authentication, "look_pause_s", 0.01)
    assert closed.controller.rest is not None
    url = f"http://127.0.0.1:{closed.controller.rest.port}/v1/window/live/scopes/s/streams/t"
    async with (
        aiohttp.ClientSession(headers={"Authorization": header("reader")}) as session,
        session.get(url) as answer,
    ):
        for _ in range(4):
            assert (await answer.content.readline()).startswith((b"data: ", b"\n"))
        with changing_users(tmp_path / "users") as users:
            reader = users.pop("reader")
            if entries is not None:
                users["reader"] = replace(reader, entries=AccessEntries.parse(entries))
        rest = await asyncio.wait_for(answer.content.read(), 10)
        assert b"event: failed\ndata: " in rest and (b"reader" in rest or b"password" in rest)
        assert PASSWORD.encode() not in rest


async def test_details_of_health_are_for_those_who_may_read_them(closed: Closed) -> None:
    """They name streams and transactions; whether all is well is for every probe."""
    for path in ("/v1/health", "/v1/health/GRPCServer"):
        for user in (None, "nothing", "writer"):
            status, health = await closed.get(user, path)
            assert status == 200 and health["status"]
            assert detailed(health) == [], (path, user)
        _, health = await closed.get("admin", path)
        assert health["name"] in detailed(health), path


async def test_rest_lists_show_what_one_may_read(closed: Closed) -> None:
    status, scopes = await closed.get("lister", "/v1/scopes")
    assert (status, scopes) == (200, {"scopes": [{"scopeName": "s"}]})
    _, streams = await closed.get("lister", "/v1/scopes/s/streams")
    assert [item["streamName"] for item in streams["streams"]] == ["u"]
    assert (await closed.get("reader", "/v1/scopes/s/streams/t"))[0] == 200
    assert (await closed.get("reader", "/v1/scopes/s/streams/t/state", "PUT", json={"streamState": "SEALED"}))[0] == 403
