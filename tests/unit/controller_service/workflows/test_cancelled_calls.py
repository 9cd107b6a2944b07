"""A call is cut off, as by its client's deadline, at every operation on the tables while its controller lives on."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from controller_service.queue import table_request_queue
from controller_service.store.in_memory import InMemoryVersionedStore
from pravega_common.errors import PravegaError
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.stream_audit import audit, requests_left
from tests.unit.controller_service.workflows.test_workflow_crashes import STEPS, Step

operations_max = 200
pytestmark = pytest.mark.timeout(300)


class CancellingTables:
    """Cancels a call when the tables are used for the n-th time, before or after the effect."""

    def __init__(self, after_effect: bool) -> None:
        self._inner = InMemoryVersionedStore()
        self._after_effect = after_effect
        self._left = 0
        self._call: asyncio.Future[Any] | None = None

    def cancel_at(self, operation: int, call: asyncio.Future[Any]) -> None:
        self._left, self._call = operation, call

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            is_last = self._left == 0 and self._call is not None
            if is_last and not self._after_effect:
                await self._cancel()
            result = await method(*args, **kwargs)
            if is_last and self._after_effect:
                await self._cancel()
            return result

        return counted

    async def _cancel(self) -> None:
        assert self._call is not None
        self._call.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_a_cut_off_call_leaves_nothing_that_nobody_runs(
    step: Step, after_effect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_request_queue, "sweep_period_s", 0.02)
    for operation in range(1, operations_max):
        if not await cut_off(step, operation, after_effect):
            assert operation > 3
            return
    raise AssertionError("the call never came to its end")


async def cut_off(step: Step, operation: int, after_effect: bool) -> bool:
    """Whether the call was cut off before it had its answer."""
    tables: Any = CancellingTables(after_effect)
    parts = ControllerParts(tables=tables)
    controller = parts.controller()
    await controller.start()
    try:
        await controller.store.create_scope("scope")
        for earlier in STEPS[: STEPS.index(step)]:
            await earlier(controller)
        call = asyncio.ensure_future(step(controller))
        tables.cancel_at(operation, call)
        try:
            await call
        except (asyncio.CancelledError, PravegaError):
            pass
        await eventually(lambda: nothing_is_left(parts), f"the end of a call cut off at operation {operation}", 5)
        # The client calls again.
        await step(controller)
        await eventually(lambda: nothing_is_left(parts))
        await audit(controller, parts.access)
        return call.cancelled()
    finally:
        await controller.stop()


async def nothing_is_left(parts: ControllerParts) -> bool:
    return await requests_left(parts.tables) == 0
