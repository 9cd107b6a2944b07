"""Repeats calls that failed, on the clock of the service.

``tenacity`` repeats them. Whether a call is repeated depends on the outcome of its error, as described in
``pravega_common.errors``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from sys import maxsize
from typing import Any, Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_never

from pravega_common.errors import Outcome, PravegaError, VersionConflict
from pravega_common.runtime.clock import Clock

T = TypeVar("T")

unlimited: Final = maxsize
"""Attempts of a call that is repeated until it succeeds or is refused."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The number of attempts and the pauses between them."""

    attempts_max: int
    pause_s: Callable[[int], float]
    """The pause after the given number of failed attempts, from 1."""


def is_temporary(error: BaseException) -> bool:
    """Whether a call that ended with this error may succeed later; never once another owner took over."""
    return isinstance(error, PravegaError) and error.may_be_repeated(idempotent=True)


def retrying(
    clock: Clock,
    *,
    wait: Callable[[RetryCallState], float],
    stop: Callable[[], bool] | None = None,
    when: Callable[[BaseException], bool] = is_temporary,
    on_error: Callable[[BaseException], None] | None = None,
) -> AsyncRetrying:
    """Attempts that go on after errors that ``when`` accepts, until ``stop`` says so; raises the last error as it is.

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
        retry=retry_if_exception(when),
        before_sleep=before_sleep,
        reraise=True,
    )


async def retry(
    work: Callable[[], Awaitable[T]],
    limits: RetryLimits,
    clock: Clock,
    *,
    when: Callable[[PravegaError], bool],
    on_error: Callable[[BaseException], None] | None = None,
) -> T:
    """Run ``work`` again while it fails with an error that ``when`` accepts; raises the last error.

    ``on_error`` is called with each error that is followed by another attempt.
    """
    try:
        return await work()
    except PravegaError as error:
        # Most calls end here: what tenacity makes for a call knows itself, and only the garbage collector frees it.
        if limits.attempts_max <= 1 or not when(error):
            raise
        if on_error is not None:
            on_error(error)
    await clock.sleep(limits.pause_s(1))
    made = 1

    async def attempt() -> T:
        # Tenacity awaits coroutine functions only, and ``work`` may be any callable that returns an awaitable.
        nonlocal made
        made += 1
        return await work()

    # One object per call: tenacity keeps the state of a call in it, which calls at the same time may not share.
    return await retrying(
        clock,
        wait=lambda _: limits.pause_s(made),
        stop=lambda: made >= limits.attempts_max,
        when=lambda error: isinstance(error, PravegaError) and when(error),
        on_error=on_error,
    )(attempt)


def is_lost_race(error: PravegaError) -> bool:
    """Whether a compare-and-set lost or its outcome is unknown. To read again settles both."""
    return isinstance(error, VersionConflict) or error.outcome is Outcome.UNKNOWN


async def compare_and_set(work: Callable[[], Awaitable[T]], limits: RetryLimits, clock: Clock, *, subject: str) -> T:
    """Run ``work`` again, from its reads, while others get in between or an answer is lost.

    ``VersionConflict`` with the subject after the last attempt.
    """
    try:
        return await retry(work, limits, clock, when=is_lost_race)
    except PravegaError as error:
        if not is_lost_race(error):
            raise
        raise VersionConflict(f"{subject}: changed by others {limits.attempts_max} times in a row") from error
