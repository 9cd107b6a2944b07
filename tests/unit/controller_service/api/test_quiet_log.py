"""Connections and calls that go well leave no line at info, over gRPC and REST; administrative ones are audited."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest
import structlog
from structlog.testing import capture_logs

from pravega_streams.client import StreamClient
from tests.support.controller_in_memory import ControllerParts


async def test_a_client_that_comes_asks_and_goes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    controller = ControllerParts().controller(rest="127.0.0.1:0")
    await controller.start()

    def ask() -> None:
        with StreamClient(f"tcp://127.0.0.1:{controller.grpc.port}") as client:
            assert "_system" in set(client.controller.list_scopes())
            assert not client.controller.scope_exists("nobody's")

    assert controller.rest is not None
    address = f"http://127.0.0.1:{controller.rest.port}/v1/scopes"
    try:
        with capture_logs() as logged, caplog.at_level(logging.INFO):
            for _ in range(3):
                await asyncio.to_thread(ask)
                async with aiohttp.ClientSession() as session:
                    answer = await session.get(address)
                    assert answer.status == 200
            structlog.get_logger().info("a line that is seen")
    finally:
        await controller.stop()
    assert [entry["event"] for entry in logged if entry["log_level"] != "debug"] == ["a line that is seen"]
    assert not caplog.records
