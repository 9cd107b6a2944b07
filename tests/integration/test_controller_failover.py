"""Kills one of two real controllers in the middle of its work; the other one finishes it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller_service.workflows import scale_stream, seal_stream
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceStub
from pravega_common.runtime.failpoints import environment_of
from tests.support.eventually import eventually
from tests.support.server_fixtures import own_redis  # noqa: F401
from tests.support.servers import RedisServer, free_port

start_time_max_s = 60.0
take_over_time_max_s = 30.0

STREAM = pb.StreamInfo(scope="scope", stream="stream")


class Processes:
    """Services as child processes, each with its own settings file and log."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self._folder = folder
        self._cpo = f"redis://{redis.address}/0"
        self._running: list[subprocess.Popen[bytes]] = []

    def start_store(self) -> subprocess.Popen[bytes]:
        tier2 = (self._folder / "tier2").as_uri()
        return self._start(
            "segment_service",
            "store",
            f"""
            [store]
            id = "store"
            listen = "127.0.0.1:{free_port()}"
            containers = 2
            [cluster]
            cpo = "{self._cpo}"
            lease_ms = 2000
            [tier1]
            servers = ["{self._cpo}"]
            [tier2]
            url = "{tier2}"
            """,
        )

    def start_controller(self, name: str, port: int, failpoints: str = "") -> subprocess.Popen[bytes]:
        return self._start(
            "controller_service",
            name,
            f"""
            [controller]
            id = "{name}"
            listen = "127.0.0.1:{port}"
            rest = ""
            containers = 2
            [cluster]
            cpo = "{self._cpo}"
            lease_ms = 1000
            """,
            failpoints,
        )

    def _start(self, package: str, name: str, settings: str, failpoints: str = "") -> subprocess.Popen[bytes]:
        file = self._folder / f"{name}.toml"
        file.write_text("\n".join(line.strip() for line in settings.splitlines()))
        environment = {**os.environ, **environment_of(failpoints)}
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", package, "--config", str(file)], stdout=log, stderr=log, env=environment
            )
        self._running.append(process)
        return process

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def processes(tmp_path: Path, own_redis: RedisServer) -> Iterator[Processes]:  # noqa: F811
    processes = Processes(tmp_path, own_redis)
    try:
        yield processes
    finally:
        processes.stop()
        for log in tmp_path.glob("*.log"):
            print(log.name, log.read_text()[-2000:])


@pytest.fixture
async def channels() -> AsyncIterator[list[Any]]:
    opened: list[Any] = []
    yield opened
    for channel in opened:
        await channel.close()


async def connected(channels: list[Any], port: int) -> Any:
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_reconnect_backoff_ms", 500)])
    channels.append(channel)
    async with asyncio.timeout(start_time_max_s):
        await channel.channel_ready()
    return ControllerServiceStub(channel)


async def prepared(processes: Processes, channels: list[Any], failpoint: str) -> tuple[Any, Any, Any]:
    """Both controllers' stubs and the process of the first, which dies at the failpoint; a stream stands."""
    ports = free_port(), free_port()
    processes.start_store()
    doomed = processes.start_controller("doomed", ports[0], f"{failpoint}=kill")
    processes.start_controller("heir", ports[1])
    first, second = await connected(channels, ports[0]), await connected(channels, ports[1])
    assert (await first.createScope(pb.ScopeInfo(scope="scope"))).status == pb.CreateScopeStatus.SUCCESS
    configuration = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=pb.ScalingPolicy(minNumSegments=2))
    assert (await first.createStream(configuration)).status == pb.CreateStreamStatus.SUCCESS
    return first, second, doomed


async def test_a_scale_is_finished_by_the_other_controller(processes: Processes, channels: list[Any]) -> None:
    first, second, doomed = await prepared(processes, channels, scale_stream.EPOCH_WRITTEN)
    request = pb.ScaleRequest(streamInfo=STREAM, sealedSegments=[0])
    request.newKeyRanges.add(start=0.0, end=0.25)
    request.newKeyRanges.add(start=0.25, end=0.5)
    try:
        await first.scale(request, timeout=10)
    except grpc.aio.AioRpcError as error:
        # The answer may be lost with the process; the scale is not.
        assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert await asyncio.to_thread(doomed.wait, 10) != 0

    async def is_scaled() -> bool:
        answer = await second.checkScale(pb.ScaleStatusRequest(streamInfo=STREAM, epoch=0))
        return bool(answer.status == pb.ScaleStatusResponse.SUCCESS)

    await eventually(is_scaled, "the scale", take_over_time_max_s)
    segments = (await second.getCurrentSegments(STREAM)).segmentRanges
    assert [(item.segmentId.segmentId >> 32, item.segmentId.segmentId & 0xFFFF) for item in segments] == [
        (1, 2),
        (1, 3),
        (0, 1),
    ]
    successors = (await second.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=STREAM))).segments
    assert [list(item.value) for item in successors] == [[0], [0]]


async def test_a_seal_asked_again_of_the_other_controller_ends(processes: Processes, channels: list[Any]) -> None:
    first, second, doomed = await prepared(processes, channels, seal_stream.SEGMENTS_SEALED)
    with pytest.raises(grpc.aio.AioRpcError):
        await first.sealStream(STREAM, timeout=10)
    assert await asyncio.to_thread(doomed.wait, 10) != 0
    answer = await second.sealStream(STREAM, timeout=take_over_time_max_s)
    assert answer.status == pb.UpdateStreamStatus.SUCCESS
    assert not (await second.getCurrentSegments(STREAM)).segmentRanges
    assert (await second.deleteStream(STREAM, timeout=take_over_time_max_s)).status == pb.DeleteStreamStatus.SUCCESS
    exists = await second.checkStreamExists(STREAM)
    assert not exists.exists
