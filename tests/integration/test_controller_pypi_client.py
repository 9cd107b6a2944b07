"""The unmodified ``pravega`` client from PyPI administers scopes and streams through the controller's gRPC port.

Its calls hold the interpreter's lock while they wait, so it runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import AsyncIterator

import pytest

from controller_service.service import Controller
from tests.support.controller_in_memory import ControllerParts

PROLOGUE = """
import sys
import pravega_client
manager = pravega_client.StreamManager(sys.argv[1], False, False)
"""


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    controller = ControllerParts().controller()
    await controller.start()
    yield controller
    await controller.stop()


async def run_client(controller: Controller, script: str, timeout_s: float = 60) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROLOGUE + textwrap.dedent(script),
        f"tcp://127.0.0.1:{controller.grpc.port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, output.decode()


async def test_scopes_and_streams(controller: Controller) -> None:
    await run_client(
        controller,
        """
        assert manager.create_scope("scope") is True
        assert manager.create_scope("scope") is False
        assert manager.create_stream("scope", "one", 2) is True
        assert manager.create_stream("scope", "one", 2) is False
        assert sorted(manager.list_scope()) == ["_system", "scope"]
        assert "one" in manager.list_stream("scope")
        """,
    )


async def test_policies_and_tags(controller: Controller) -> None:
    await run_client(
        controller,
        """
        manager.create_scope("scope")
        scaling = pravega_client.StreamScalingPolicy.auto_scaling_policy_by_data_rate(16, 2, 1)
        retention = pravega_client.StreamRetentionPolicy.by_size(1024 * 1024)
        assert manager.create_stream_with_policy("scope", "auto", scaling, retention, ["b", "a"])
        assert manager.get_stream_tags("scope", "auto") == ["b", "a"]
        assert manager.update_stream_with_policy("scope", "auto", scaling, retention, ["c"])
        assert manager.get_stream_tags("scope", "auto") == ["c"]
        """,
    )


async def test_seal_delete_and_create_again(controller: Controller) -> None:
    await run_client(
        controller,
        """
        manager.create_scope("scope")
        for _ in range(2):
            assert manager.create_stream("scope", "gone", 1)
            assert manager.seal_stream("scope", "gone")
            assert manager.delete_stream("scope", "gone")
        assert manager.delete_scope("scope")
        """,
    )


async def test_listing_a_missing_scope_ends_at_once(controller: Controller) -> None:
    script = """
        assert manager.list_stream("absent") == []
        assert manager.list_stream("") == []
        """
    await run_client(controller, script, timeout_s=15)
