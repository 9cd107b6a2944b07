"""A controller tells the time of the cluster behind the list of controllers, to everybody who can ask for that."""

from __future__ import annotations

import time
from typing import Any

import grpc

from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceStub
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.clock import AheadClock

ahead_ms = 3_600_000


async def test_the_list_of_controllers_comes_with_the_time_of_the_cluster(parts: ControllerParts) -> None:
    """It is that of the control plane oracle, not the machine's; the message is the one that it was."""
    clock = AheadClock()
    clock.ahead_ms = ahead_ms
    parts.cpo.time_of_day = clock
    parts.hosts.known_controllers = [("one", 9090)]
    controller = parts.controller()
    await controller.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        stub: Any = ControllerServiceStub(channel)
        began_ms = time.time_ns() // 1_000_000
        call = stub.getControllerServerList(pb.ServerRequest())
        assert await call == pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint="one", port=9090)])
        told = dict(await call.trailing_metadata())["pravega-time-ms"]
        # The clock follows the oracle as closely as its answer to a renewal tells.
        assert began_ms - 1_000 <= int(told) - ahead_ms <= time.time_ns() // 1_000_000 + 1_000
    await controller.stop()
