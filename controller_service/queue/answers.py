"""Work that a caller waits for: submitted to the queue, then its outcome."""

from __future__ import annotations

from typing import Any, Final

from controller_service.errors import WaitTimedOut
from controller_service.queue.request_queue import Request, RequestQueue

wait_time_max_s: Final = 120.0
"""How long a call waits for its work (controller-api.md 2.3)."""


async def run_and_wait(queue: RequestQueue, request_id: str, kind: str, key: str, payload: dict[str, Any]) -> None:
    """Raises what made the handler give up; ``WaitTimedOut`` if the work is not done in time: it continues."""
    await queue.submit(Request(request_id, kind, key, payload))
    if not await queue.wait_done(request_id, wait_time_max_s):
        raise WaitTimedOut(f"{kind} of {key} is not finished after {wait_time_max_s:.0f} s; it continues")
