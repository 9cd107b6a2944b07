"""Runs blocking storage clients on a bounded thread pool, with a deadline per call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pravega_common.errors import PravegaError, Unavailable

T = TypeVar("T")

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
        try:
            future = loop.run_in_executor(self._pool, function)
        except BaseException:
            self._slots.release()
            raise
        future.add_done_callback(self._free_slot)
        done, _ = await asyncio.wait([future], timeout=max(0.0, deadline_s - loop.time()))
        if not done:
            raise overdue(f"{self._name}: no answer within {self._call_time_max_s:g} s")
        return future.result()

    def close(self) -> None:
        """Start nothing more; functions that run end by their own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _take_slot(self) -> None:
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

    def _free_slot(self, future: asyncio.Future[T]) -> None:
        self._slots.release()
        if not future.cancelled():
            future.exception()  # marks it as seen: the caller may be gone
