"""Defines the controller's durable queue of work: requests, their handlers and what a caller gets back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from controller_service.errors import WaitTimedOut

wait_time_max_s: Final = 120.0
"""How long a call waits for its work (docs/controller-api.md 2.3)."""


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
Answer = Callable[[Any], None]
"""Gives the callers of a request its first answer. Later answers of the same request are ignored."""
AnsweringHandler = Callable[[Request, Answer], Awaitable[None]]
"""A handler that can answer its caller long before it has finished."""


class Postpone(Exception):
    """The stream is in a state that does not admit this work yet. ``delay_s``: the least time until it may."""

    def __init__(self, reason: str, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class SubmittedRequest:
    """A request in the queue: callers wait for its first answer or for its outcome, the queue provides both."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_handled = False
        """The handler has ended: it sees nothing of what happens from now on, so nobody joins this request any more."""
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] = loop.create_future()
        self._outcome: asyncio.Future[None] = loop.create_future()
        for future in (self._answer, self._outcome):
            # There may be no caller; that must not count as an error that was never looked at.
            future.add_done_callback(_look_at)

    async def first_answer(self, timeout_s: float = wait_time_max_s) -> Any:
        """The value that the handler answers before it has finished; None from a handler that gives no answer.

        Raises as ``outcome`` if the handler gives up before it answers.
        """
        return await self._wait(self._answer, timeout_s, "answered")

    async def outcome(self, timeout_s: float = wait_time_max_s) -> None:
        """Wait until the handler has finished. Raises what made it give up; ``WaitTimedOut`` if the work is not done
        in time: it continues."""
        await self._wait(self._outcome, timeout_s, "finished")

    async def _wait(self, future: asyncio.Future[Any], timeout_s: float, end: str) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(future)
        except TimeoutError as error:
            request = self.request
            raise WaitTimedOut(
                f"{request.kind} of {request.key} is not {end} after {timeout_s:.0f} s; it continues"
            ) from error

    # ---- for the queue -----------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self._outcome.done()

    @property
    def is_refused(self) -> bool:
        return self._outcome.done() and self._outcome.exception() is not None

    def answer(self, value: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(value)

    def share_answer(self, earlier: SubmittedRequest) -> None:
        """Answer as an earlier submission of the same request, as soon as that one has its answer."""

        def copy(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None:
                self.answer(done.result())

        earlier._answer.add_done_callback(copy)

    def forget_payload(self) -> None:
        """Keep the names of the request alone: what is remembered for its answer is not to hold what it was about."""
        self.request = replace(self.request, payload={})

    def succeed(self) -> None:
        self.answer(None)
        self._outcome.set_result(None)

    def fail(self, error: BaseException) -> None:
        for future in (self._answer, self._outcome):
            if not future.done():
                future.set_exception(error)


class RequestQueue(Protocol):
    """A request is durable when ``submit`` returns. Requests with one key run one at a time and in order; different
    keys run concurrently, within the limits of ``handler_slots.py``. A handler that fails is retried with back-off and
    stays in the queue; what another instance left behind is swept up at start and, once its lease is gone, while
    running."""

    def register(self, kind: str, handler: Handler) -> None: ...

    def register_answering(self, kind: str, handler: AnsweringHandler) -> None: ...

    async def submit(self, request: Request) -> SubmittedRequest:
        """A caller that is cut off meanwhile has submitted the request or not; if so, it is run.

        A request that is pending here is not added again; one that was submitted before keeps its first answer."""
        ...


async def run_and_wait(queue: RequestQueue, request: Request) -> None:
    """Submit a request and wait for its outcome, with the errors of ``SubmittedRequest.outcome``."""
    await (await queue.submit(request)).outcome()


def _look_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
