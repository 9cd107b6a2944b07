"""Defines the life cycle that every long-lived part shares; background tasks are made only here."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import structlog

from pravega_common.errors import PravegaError, Unavailable
from pravega_common.invariants import check

cancel_again_s: Final = 1.0
"""Pause before a task that goes on after it was cancelled is cancelled again."""


class ServiceState(enum.Enum):
    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Part(Protocol):
    """A part that a service can own: another service, or an object that passes on the failures of its services."""

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when the part failed by itself; at once if it has already."""
        ...


class Service:
    """A long-lived part that starts, runs and stops, and owns every task made on the way.

    Subclasses override ``on_start`` and ``on_stop`` and make tasks only with ``spawn``. A task that ends with an
    error moves the service to ``FAILED``: its other tasks are cancelled, ``on_stop`` runs, ``wait_stopped`` raises
    the error and the callbacks given to ``on_failure`` run. ``stop`` may be called in every state and twice.

    A service that starts another one calls ``own`` first: a part that fails takes its owner down, up to a part
    that can do something about it. Nothing goes on beside a part that is dead.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ServiceState.NEW
        self.failure: BaseException | None = None
        self.log = structlog.get_logger(service=name)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopped = asyncio.Event()
        self._failure_callbacks: list[Callable[[BaseException], None]] = []
        self._start_task: asyncio.Task[None] | None = None
        self._stop_task: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """Do what must be done before the service counts as running."""

    async def on_stop(self) -> None:
        """Release what ``on_start`` took; runs also after a failed start."""

    @property
    def is_running(self) -> bool:
        return self.state is ServiceState.RUNNING

    async def start(self) -> None:
        """Raises what made the start fail, also when that was a task or a part."""
        check(self.state is ServiceState.NEW, "service started twice", name=self.name, state=self.state)
        self.state = ServiceState.STARTING
        # On a task of its own, so that a failure meanwhile can end it and nothing else.
        self._start_task = asyncio.get_running_loop().create_task(self.on_start(), name=f"{self.name}/start")
        try:
            await self._start_task
        except BaseException as error:
            if self.state is not ServiceState.STARTING:  # stopped meanwhile
                await self._stopped.wait()
                if isinstance(error, asyncio.CancelledError) and not _is_cancelled():
                    raise Unavailable(f"{self.name} was stopped while it started") from None
                raise
            self.failure = self.failure or error
        if self.failure is not None:
            await self._shut_down(ServiceState.FAILED)
            raise self.failure
        if self.state is ServiceState.STARTING:
            self.state = ServiceState.RUNNING

    async def stop(self) -> None:
        if self.state is ServiceState.NEW:
            self.state = ServiceState.STOPPED
            self._stopped.set()
            return
        if self.failure is None and self.state in (ServiceState.STARTING, ServiceState.RUNNING):
            await self._shut_down(ServiceState.STOPPED)
            return
        await self._stopped.wait()

    async def wait_stopped(self) -> None:
        """Wait for the end; raises the error of a failed service."""
        await self._stopped.wait()
        if self.failure is not None:
            raise self.failure

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """As ``Part.on_failure``; the callback comes after the shutdown."""
        if self.state is ServiceState.FAILED and self.failure is not None:
            callback(self.failure)
        else:
            self._failure_callbacks.append(callback)

    def own(self, part: Part) -> None:
        """From now on the failure of the part is the failure of this service. Called before the part is started, or
        right after, where this service has better words for what made the start fail."""
        part.on_failure(self.fail)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this service."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def fail(self, error: BaseException) -> None:
        """Move to ``FAILED`` from inside; returns at once, the shutdown runs on its own task, or at the end of
        ``start``, which is cut short."""
        if self.state not in (ServiceState.STARTING, ServiceState.RUNNING) or self.failure is not None:
            return
        self.failure = error
        # The place of an error that nobody foresaw is all there is to go by.
        trace = None if isinstance(error, PravegaError) else error
        self.log.error("service failed", error=repr(error), exc_info=trace)
        if self.state is ServiceState.STARTING:
            if self._start_task is not None and self._start_task is not asyncio.current_task():
                self._start_task.cancel()
            return
        self._stop_task = asyncio.get_running_loop().create_task(
            self._shut_down(ServiceState.FAILED), name=f"{self.name}/fail"
        )

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(error)

    async def _end_start(self) -> None:
        """Cut a start short that may wait for long: nothing that it makes would be released."""
        start = self._start_task
        while start is not None and not start.done() and start is not asyncio.current_task():
            start.cancel()
            await asyncio.wait([start], timeout=cancel_again_s)

    async def _cancel_tasks(self) -> None:
        """Cancel every task and wait for its end, as often as it takes: a cancellation that meets a result inside
        ``asyncio.wait_for`` is lost."""
        tasks = self._tasks - {asyncio.current_task()}
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=cancel_again_s)

    async def _shut_down(self, final: ServiceState) -> None:
        self.state = ServiceState.STOPPING
        try:
            await self._end_start()
            await self.on_stop()
        finally:
            await self._cancel_tasks()
            self.state = final
            self._stopped.set()
            if self.failure is not None:
                for callback in self._failure_callbacks:
                    callback(self.failure)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
