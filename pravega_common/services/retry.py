"""Repeats calls that failed, within named limits.

``tenacity`` repeats them; their pauses are slept on the injected clock. Whether a call is repeated depends on the
outcome of its error, as described in ``pravega_common.errors``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from sys import maxsize
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

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


async def retry(
    work: Callable[[], Awaitable[T]],
    limits: RetryLimits,
    clock: Clock,
    *,
    when: Callable[[PravegaError], bool],
    before_pause: Callable[[BaseException], None] | None = None,
) -> T:
    """Run ``work`` again while it fails with an error that ``when`` accepts; raises the last error.

    ``before_pause`` sees the errors that are followed by another attempt.
    """

    async def attempt() -> T:
        # Tenacity awaits coroutine functions only, and ``work`` may be any callable that returns an awaitable.
        return await work()

    def note(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if before_pause is not None and error is not None:
            before_pause(error)

    # One object per call: tenacity keeps the state of a call in it, which calls at the same time may not share.
    retrying = AsyncRetrying(
        sleep=clock.sleep,
        stop=stop_after_attempt(limits.attempts_max),
        wait=lambda state: limits.pause_s(state.attempt_number),
        retry=retry_if_exception(lambda error: isinstance(error, PravegaError) and when(error)),
        before_sleep=note,
        reraise=True,
    )
    return await retrying(attempt)


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
