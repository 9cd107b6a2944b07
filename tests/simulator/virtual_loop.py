"""An event loop whose time jumps to the next timer: hours of a cluster pass in a second, in the same order every time.

Nothing here waits, and nothing asks the machine for the time. Callbacks run in the order in which they were made due;
timers of the same instant in the order in which they were set. Tasks hash by their number, so that a set of tasks has
the same order in every run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from tests.simulator.processes import ProcessKilled, ProcessState, process_of

T = TypeVar("T")
Factory = Callable[[], asyncio.BaseProtocol]

callbacks_per_instant_max: Final = 2_000_000
"""Callbacks without time passing; beyond it something spins."""


class Stuck(Exception):
    """The run cannot go on: there is nothing to run, or something runs without end while time stands still."""


class Connector(Protocol):
    """The network as the loop sees it."""

    async def connect(self, factory: Factory, address: str) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]: ...


class NumberedTask(asyncio.Task[T]):
    """A task with a hash that does not depend on its place in memory."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **named: Any) -> None:
        self._number = number
        super().__init__(coro, **named)

    def __hash__(self) -> int:
        return self._number


class Call(list[Any]):
    """A callback that is due, or will be: what asyncio calls a handle, without its cost, which a seed pays often.

    Its items: the time when it is due, its place among those of the same time, its callback (``None`` once it is
    cancelled), its arguments and its context. Lists are made and compared without a line of Python.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[2], self[3] = None, ()  # what it would have used may go

    def cancelled(self) -> bool:
        return self[2] is None

    def when(self) -> float:
        return float(self[0])


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one run. ``network`` answers ``create_connection``."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self.network: Connector | None = None
        self.callbacks = 0
        self.unhandled: list[dict[str, Any]] = []
        """What nobody caught, outside of dead processes."""
        self._now_s = start_s
        self._ready: deque[Call] = deque()
        self._timers: list[Call] = []
        self._order = itertools.count()
        self._task_numbers = itertools.count()
        self._closed = False
        self._running = False

    # --- time and callbacks

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        call = Call((self._now_s, 0, callback, args, contextvars.copy_context() if context is None else context))
        if not self._closed:
            self._ready.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        if context is None:  # an empty one is false
            context = contextvars.copy_context()
        call = Call((when, next(self._order), callback, args, context))
        if not self._closed:
            heapq.heappush(self._timers, call)
        return call

    def run_again(self, calls: list[Any]) -> None:
        """Put callbacks of a process that was paused back into the queue."""
        self._ready.extend(calls)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        return NumberedTask(next(self._task_numbers), coro, loop=self, name=name, context=context)

    # --- running

    def run_until_complete(self, future: Any) -> Any:
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            self._run(task.done)
        finally:
            self._running = False
            asyncio._set_running_loop(None)
        return task.result()

    def _run(self, is_done: Callable[[], bool]) -> None:
        """Run what is due, and move time on. Every microsecond here is paid a hundred thousand times by each seed."""
        take, running, ready = self._ready.popleft, ProcessState.RUNNING, self._ready
        count, count_max = 0, callbacks_per_instant_max
        try:
            while not is_done():
                if not ready:
                    self._move_on()
                    count_max = count + callbacks_per_instant_max
                call = take()
                _, _, callback, args, context = call
                if callback is None:
                    continue
                process = process_of(context)
                if process is not None and process.state is not running:
                    if process.state is ProcessState.PAUSED:
                        process.backlog.append(call)
                    continue
                if count == count_max:
                    raise Stuck(f"{callbacks_per_instant_max} callbacks at {self._now_s:.3f}, and time stands still")
                count += 1
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"exception in callback {callback}", "exception": error})
        finally:
            self.callbacks += count

    def _move_on(self) -> None:
        """Move time on to the next timer, and make due what is set for then."""
        timers, ready, take = self._timers, self._ready, heapq.heappop
        while timers:
            call = take(timers)
            if call[2] is not None:
                break
        else:
            raise Stuck(f"nothing is left to run at {self._now_s:.3f}")
        ready.append(call)
        if call[0] > self._now_s:
            self._now_s = call[0]
        now_s = self._now_s
        while timers and timers[0][0] <= now_s:
            ready.append(take(timers))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed and not isinstance(context.get("exception"), ProcessKilled):
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Run nothing any more; what dying tasks still ask for is ignored."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def forget(self) -> None:
        """Let go of everything that belonged to the run."""
        self.network = None
        self.unhandled.clear()

    get_debug = staticmethod(bool)  # False; every future asks, and this is no Python

    # --- the network

    async def create_connection(
        self, protocol_factory: Factory, host: Any = None, port: Any = None, **named: Any
    ) -> Any:
        if self.network is None:
            raise OSError("there is no network")
        return await self.network.connect(protocol_factory, f"{host}:{port}")


class VirtualClock:
    """``Clock`` of everything in a run."""

    def __init__(self, loop: VirtualLoop, wall_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._wall_ms = wall_ms

    def monotonic_s(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._wall_ms + int(self._loop.time() * 1000)

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
