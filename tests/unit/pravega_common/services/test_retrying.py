from __future__ import annotations

import asyncio
import gc

import pytest

from pravega_common.errors import InvalidArgument, PravegaError, Throttled, UnknownOutcome, VersionConflict
from pravega_common.services.retrying import RetryLimits, compare_and_set, is_lost_race, retry

LIMITS = RetryLimits(attempts_max=3, pause_s=lambda failed: 0.5 * failed)


class RecordingClock:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        self.pauses.append(delay_s)
        await asyncio.sleep(0)


class Work:
    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def test_a_call_is_repeated_with_pauses_until_it_succeeds() -> None:
    clock, work, noted = RecordingClock(), Work(Throttled("one"), Throttled("two")), list[str]()
    answer = await retry(
        work, LIMITS, clock, when=lambda error: error.retryable, on_error=lambda error: noted.append(str(error))
    )
    assert (answer, work.calls, clock.pauses, noted) == ("done", 3, [0.5, 1.0], ["one", "two"])


async def test_the_last_error_is_raised() -> None:
    clock, work = RecordingClock(), Work(*(Throttled(str(number)) for number in range(5)))
    with pytest.raises(Throttled, match="2"):
        await retry(work, LIMITS, clock, when=lambda error: error.retryable)
    assert (work.calls, clock.pauses) == (3, [0.5, 1.0])


@pytest.mark.parametrize("error", [InvalidArgument("no"), KeyError("a bug"), asyncio.CancelledError()])
async def test_other_errors_are_not_repeated(error: BaseException) -> None:
    work = Work(error)
    with pytest.raises(type(error)):
        await retry(work, LIMITS, RecordingClock(), when=lambda found: found.retryable)
    assert work.calls == 1


async def test_a_callable_that_returns_an_awaitable_is_awaited() -> None:
    work = Work(Throttled("once"))
    assert await retry(lambda: work(), LIMITS, RecordingClock(), when=lambda error: True) == "done"


@pytest.mark.parametrize("lost", [VersionConflict("changed"), UnknownOutcome("answer lost")])
async def test_a_compare_and_set_reads_again_and_names_its_subject_in_the_end(lost: PravegaError) -> None:
    assert await compare_and_set(Work(lost), LIMITS, RecordingClock(), subject="thing") == "done"
    with pytest.raises(VersionConflict, match="thing: changed by others 3 times in a row"):
        await compare_and_set(Work(lost, lost, lost), LIMITS, RecordingClock(), subject="thing")


async def test_an_unavailable_store_is_no_lost_race() -> None:
    assert not is_lost_race(Throttled("busy"))
    with pytest.raises(Throttled):
        await compare_and_set(Work(Throttled("busy")), LIMITS, RecordingClock(), subject="thing")


async def test_a_call_that_succeeds_leaves_nothing_for_the_garbage_collector() -> None:
    clock, work = RecordingClock(), Work()
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            await retry(work, LIMITS, clock, when=lambda error: error.retryable)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("attempts", [1, 2])
async def test_attempts_are_counted_from_the_first(attempts: int) -> None:
    clock, work = RecordingClock(), Work(*(Throttled(str(number)) for number in range(5)))
    with pytest.raises(Throttled):
        await retry(work, RetryLimits(attempts, lambda failed: failed), clock, when=lambda error: True)
    assert (work.calls, clock.pauses) == (attempts, [1] * (attempts - 1))
