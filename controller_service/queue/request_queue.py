"""The contract of the controller's durable queue of work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """Work that was promised: ``kind`` names the handler, ``key`` (``scope/stream``) orders it.

    ``payload`` is JSON. ``request_id`` makes a second submission of the same work a no-op.
    """

    request_id: str
    kind: str
    key: str
    payload: dict[str, Any]


Handler = Callable[[Request], Awaitable[None]]
"""Idempotent: may run again after a crash at any point, also on another instance. ``Postpone`` means: run it later."""


class Postpone(Exception):
    """The stream is in a state that does not admit this work yet."""


class RequestQueue(Protocol):
    """A request is durable when ``submit`` returns. Requests with one key run one at a time and in order; different
    keys run concurrently up to ``requests_concurrent_max``. A handler that fails is retried with back-off and stays in
    the queue; what another instance left behind is swept up at start and, once its lease is gone, while running."""

    def register(self, kind: str, handler: Handler) -> None: ...

    async def submit(self, request: Request) -> None: ...

    async def wait_done(self, request_id: str, timeout_s: float) -> bool:
        """Whether the request's handler has finished; for callers that answer synchronously."""
        ...
