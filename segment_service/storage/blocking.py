"""Runs blocking storage clients on a bounded thread pool, with a deadline per call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from segment_service.contracts.chunk_storage import check_deletion

T = TypeVar("T")
V = TypeVar("V")

threads_max_default = 16
"""Threads of one pool, and so calls that run at once."""

call_time_max_s_default = 30.0
"""Seconds from asking to the answer, waiting for a thread included."""

waiting_calls_max = 1024
"""Calls of one pool that may wait for a thread; more are refused as ``Unavailable``."""


class BlockingCalls:
    """Runs blocking functions on threads of its own.

    A thread is occupied until its function really ends, also when the caller gave up at the deadline: a store that
    hangs therefore costs at most ``threads_max`` threads, and further calls end as ``Unavailable``.
    """

    def __init__(self, name: str, threads_max: int, call_time_max_s: float) -> None:
        self._call_time_max_s = call_time_max_s
        self._pool = ThreadPoolExecutor(max_workers=threads_max, thread_name_prefix=name)
        self._slots = asyncio.Semaphore(threads_max)
        self._waiting = 0
        self._name = name

    async def run(self, function: Callable[[], T], *, overdue: type[PravegaError] = Unavailable) -> T:
        """The function's result. ``Unavailable`` if it could not start in time, ``overdue`` if it started and did not
        end in time (it still may)."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._call_time_max_s
        await self._take_slot()
        answer: asyncio.Future[T] = loop.create_future()
        try:
            self._pool.submit(self._call, loop, function, [answer])
        except BaseException:
            self._slots.release()
            raise
        timer = loop.call_at(deadline_s, self._give_up, answer, overdue)
        try:
            return await answer
        finally:
            timer.cancel()
            del answer  # an error of it has this frame, and what it holds

    async def delete_all(
        self, names: Sequence[str], function: Callable[[Sequence[str]], Mapping[str, PravegaError]]
    ) -> Mapping[str, PravegaError]:
        """``ChunkStorage.delete_all`` by a function that may also fail as a whole."""
        check_deletion(names)
        try:
            return await self.run(lambda: function(names), overdue=UnknownOutcome)
        except PravegaError as error:
            return dict.fromkeys(names, error)

    def close(self) -> None:
        """Start nothing more; functions that run end by their own time limits."""
        self._pool.shutdown(wait=False)

    async def _take_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # at once
            return
        if self._waiting >= waiting_calls_max:
            raise Unavailable(f"{self._name}: {waiting_calls_max} calls wait for a thread, the store is too slow")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._call_time_max_s):  # not wait_for: it can lose a cancellation
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(f"{self._name}: no thread was free within {self._call_time_max_s:g} s") from None
        finally:
            self._waiting -= 1

    def _call(
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], T], answers: list[asyncio.Future[T]]
    ) -> None:
        """On a thread. One wake-up of the loop brings the answer: a future of the pool that is wrapped in one of the
        loop takes three times as many steps. An error has this frame and the pool's, neither of which may hold the
        future that it goes to: so that is taken from a list."""
        answer = answers.pop()
        try:
            result = function()
        except BaseException as error:
            loop.call_soon_threadsafe(self._end, answer, answer.set_exception, error)
        else:
            loop.call_soon_threadsafe(self._end, answer, answer.set_result, result)
        finally:
            del answer

    def _end(self, answer: asyncio.Future[T], finish: Callable[[V], None], outcome: V) -> None:
        self._slots.release()
        if not answer.done():  # else the caller is gone
            finish(outcome)

    def _give_up(self, answer: asyncio.Future[T], overdue: type[PravegaError]) -> None:
        if not answer.done():
            answer.set_exception(overdue(f"{self._name}: no answer within {self._call_time_max_s:g} s"))


def each(names: Sequence[str], delete: Callable[[str], object]) -> dict[str, PravegaError]:
    """Delete one after the other; the errors of those that fail."""
    failed: dict[str, PravegaError] = {}
    for name in names:
        try:
            delete(name)
        except PravegaError as error:
            failed[name] = error
    return failed
