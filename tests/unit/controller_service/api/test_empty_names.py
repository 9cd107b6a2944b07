"""Sends every call of the API with empty and with oversized names: each is answered at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.table_backend import TableVersionedStore
from controller_service.store.versioned_store import VersionedStore
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.table.table_client import TableClient
from tests.support.controller_in_memory import ControllerParts
from tests.support.store_in_process import running_store

service = pb.DESCRIPTOR.services_by_name["ControllerService"]
answer_time_max_s = 5.0
"""Far below the minute for which a client repeats a call whose answer it lost."""
NAMES = ("scope", "stream", "readerGroupName", "readerGroup", "kvtName", "streamName")


@pytest.fixture(params=["in memory", "over a socket"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VersionedStore]:
    if request.param == "in memory":
        yield InMemoryVersionedStore()
        return
    async with running_store(tmp_path) as store:
        yield TableVersionedStore(TableClient(store.client))


@pytest.fixture
async def channel(tables: VersionedStore) -> AsyncIterator[grpc.aio.Channel]:
    controller = ControllerParts(tables=tables).controller()
    await controller.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as opened:
        yield opened
    await controller.stop()


async def call(channel: grpc.aio.Channel, method: str, request: Any) -> tuple[grpc.StatusCode, Any]:
    stub: Any = channel.unary_unary(
        f"/{service.full_name}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=getattr(pb, service.methods_by_name[method].output_type.name).FromString,
    )
    try:
        return grpc.StatusCode.OK, await stub(request, timeout=answer_time_max_s)
    except grpc.aio.AioRpcError as error:
        return error.code(), None


def named(message: Any, text: str) -> Any:
    """The message with every name in it set."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.message_type is not None:
            named(getattr(message, field.name), text)
            getattr(message, field.name).SetInParent()
        elif field.name in NAMES:
            setattr(message, field.name, text)
    return message


@pytest.mark.parametrize("text", ["", "n" * 9_000], ids=["empty", "oversized"])
async def test_every_call_answers_such_names_at_once(channel: grpc.aio.Channel, text: str) -> None:
    late = []
    for method in service.methods:
        request = named(getattr(pb, method.input_type.name)(), text)
        status, _ = await call(channel, method.name, request)
        if status in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
            late.append((method.name, status))
    assert not late


async def test_empty_names_have_the_status_of_what_does_not_exist(channel: grpc.aio.Channel) -> None:
    async def status_of(method: str, request: Any) -> Any:
        status, answer = await call(channel, method, request)
        assert status is grpc.StatusCode.OK, (method, status)
        return answer.status

    listing = pb.StreamsInScopeResponse.SCOPE_NOT_FOUND
    assert await status_of("listStreamsInScope", pb.StreamsInScopeRequest()) == listing
    assert await status_of("listStreamsInScopeForTag", pb.StreamsInScopeWithTagRequest(tag="t")) == listing
    tables_listing = pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND
    assert await status_of("listKeyValueTablesInScope", pb.KVTablesInScopeRequest()) == tables_listing
    group = pb.ReaderGroupConfigResponse.RG_NOT_FOUND
    assert await status_of("getReaderGroupConfig", pb.ReaderGroupInfo()) == group
    assert await status_of("getReaderGroupConfig", pb.ReaderGroupInfo(scope="_system")) == group
    table = pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND
    assert await status_of("getKeyValueTableConfiguration", pb.KeyValueTableInfo(scope="_system")) == table
    configuration = pb.StreamConfig(scalingPolicy=pb.ScalingPolicy(minNumSegments=1))
    configuration.streamInfo.stream = "stream"
    assert await status_of("createStream", configuration) == pb.CreateStreamStatus.SCOPE_NOT_FOUND
    status, _ = await call(channel, "createScope", pb.ScopeInfo())
    assert status is grpc.StatusCode.INVALID_ARGUMENT
