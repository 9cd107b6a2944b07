"""Controllers agree on the buckets: each is one live controller's, and those of a dead one are dealt out."""

from __future__ import annotations

from typing import Any

import grpc

from controller_service.buckets.spread import bucket_count
from controller_service.service import Controller
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceStub
from tests.support.controller_in_memory import ControllerParts


async def mapping(controller: Controller, service: int) -> dict[str, list[int]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        request = pb.ControllerToBucketMappingRequest(serviceType=service)  # type: ignore[arg-type]
        stub: Any = ControllerServiceStub(channel)
        answer = await stub.getControllerToBucketMapping(request)
    return {controller_id: list(buckets.id) for controller_id, buckets in answer.mapping.items()}


async def test_each_bucket_is_one_controllers(parts: ControllerParts) -> None:
    first, second = parts.controller(), parts.controller()
    await first.start()
    await second.start()
    for service in (0, 1):
        found = await mapping(first, service)
        assert found == await mapping(second, service)
        assert found.keys() == {first.member_id, second.member_id}
        assert sorted(bucket for buckets in found.values() for bucket in buckets) == list(range(bucket_count))
    await second.stop()
    assert await mapping(first, 0) == {first.member_id: list(range(bucket_count))}
    await first.stop()
