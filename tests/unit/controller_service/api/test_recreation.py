"""A stream that is created while an earlier one of its name is being deleted: nobody is told that it exists."""

from __future__ import annotations

from typing import Any

import aiohttp
import grpc
import pytest

from controller_service.store.records import DELETION, STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import configuration_to
from tests.support.controller_in_memory import ControllerParts

S, T = "scope", "stream"
ONE = StreamConfiguration(ScalingPolicy.fixed(1))


async def mark(context: StreamContext) -> None:
    context.stage(STATE, StateRecord(StreamState.SEALED, DELETION))


async def test_both_interfaces_say_what_is_waited_for(parts: ControllerParts) -> None:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    assert controller.rest is not None
    workflows = controller.parts.workflows
    await controller.store.create_scope(S)
    assert await workflows.create.create(S, T, ONE)
    await controller.store.update(S, T, mark)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        call: Any = channel.unary_unary(
            f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/createStream",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=bytes,
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(configuration_to(S, T, ONE), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "stream scope/stream is being deleted" in (refused.value.details() or "")

    body = {"streamName": T, "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{controller.rest.port}") as session:
        async with session.post(f"/v1/scopes/{S}/streams", json=body) as answer:
            assert answer.status == 409
            assert answer.reason == "stream scope/stream is being deleted; it can be created again when that has ended"
        await workflows.delete.delete("delete", S, T)
        async with session.post(f"/v1/scopes/{S}/streams", json=body) as answer:
            assert answer.status == 201
    await controller.stop()
