"""Repeats calls to a server that is away for a while, on the clock of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_never

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock


def is_temporary(error: BaseException) -> bool:
    """Whether a call that ended with this error may succeed later; never once another owner took over."""
    return isinstance(error, PravegaError) and error.may_be_repeated(idempotent=True)


def retrying(
    clock: Clock,
    *,
    wait: Callable[[RetryCallState], float],
    stop: Callable[[], bool] | None = None,
    on_error: Callable[[BaseException], None] | None = None,
) -> AsyncRetrying:
    """Attempts that go on after temporary errors, until ``stop`` says so; the last error is raised as it is.

    ``on_error`` is called with each error that is followed by another attempt.
    """

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if on_error is not None and error is not None:
            on_error(error)

    stop_when: Any = stop_never if stop is None else lambda _: stop()
    return AsyncRetrying(
        sleep=clock.sleep,
        wait=wait,
        stop=stop_when,
        retry=retry_if_exception(is_temporary),
        before_sleep=before_sleep,
        reraise=True,
    )
