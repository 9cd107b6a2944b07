"""Asks for reader groups whose configuration names what no stream can be called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceStub
from tests.support.controller_in_memory import ControllerParts

NIL_ID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
async def controller() -> AsyncIterator[Any]:
    made = ControllerParts().controller()
    await made.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{made.grpc.port}") as channel:
        stub: Any = ControllerServiceStub(channel)
        await stub.createScope(pb.ScopeInfo(scope="s"))
        yield stub
    await made.stop()


def reading(scope: str, stream: str) -> pb.ReaderGroupConfiguration:
    return pb.ReaderGroupConfiguration(
        scope="s",
        readerGroupName="g",
        maxOutstandingCheckpointRequest=3,
        readerGroupId=NIL_ID,
        startingStreamCuts=[pb.StreamCut(streamInfo=pb.StreamInfo(scope=scope, stream=stream))],
    )


@pytest.mark.parametrize(("scope", "stream"), [("s", "a/b"), ("s/a", "b")])
async def test_a_group_that_reads_what_cannot_be_is_not_made(controller: Any, scope: str, stream: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await controller.createReaderGroup(reading(scope, stream))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    found = await controller.getReaderGroupConfig(pb.ReaderGroupInfo(scope="s", readerGroup="g"))
    assert found.status == pb.ReaderGroupConfigResponse.RG_NOT_FOUND


async def test_a_group_is_not_changed_to_read_what_cannot_be(controller: Any) -> None:
    made = (await controller.createReaderGroup(reading("s", "t"))).config
    changed = reading("s", "a/b")
    changed.readerGroupId = made.readerGroupId
    with pytest.raises(grpc.aio.AioRpcError):
        await controller.updateReaderGroup(changed)
    assert (await controller.getReaderGroupConfig(pb.ReaderGroupInfo(scope="s", readerGroup="g"))).config == made
