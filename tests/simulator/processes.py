"""Processes of the simulated cluster, all of them in one real one.

A process is a mark in the context of its tasks and callbacks. The loop asks the mark before it runs anything: what
belongs to a dead process is dropped, what belongs to a paused one waits. So a crash stops a store between two
instructions that it can see, without running one ``finally`` of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import operator
from collections.abc import Callable, Coroutine
from typing import Any


class ProcessState(enum.Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class ProcessKilled(BaseException):
    """Unwinds the code that ran when its process was killed; nothing that it does on its way has an effect outside."""


class Process:
    """A store process. ``on_death`` callbacks run in the world, at the moment of the death."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self.context = contextvars.copy_context()
        self.context.run(_current.set, self)
        self.backlog: list[Any] = []
        self._on_death: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.value}>"

    @property
    def is_alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine inside the process."""
        context = self.context.copy()
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name}/{name}", context=context)
        self._tasks.append(task)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run a callback inside the process, at once or when it goes on."""
        asyncio.get_running_loop().call_soon(callback, *args, context=self.context.copy())

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Run a callback inside the process, now if it is running; the caller is none of its code."""
        if self.state is ProcessState.RUNNING:
            self.context.copy().run(callback, *args)
        else:
            self.call_soon(callback, *args)

    def on_death(self, callback: Callable[[], None]) -> None:
        self._on_death.append(callback)

    def pause(self) -> None:
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> list[Any]:
        """Go on; returns the callbacks that came due meanwhile, which the caller gives back to the loop."""
        if self.state is not ProcessState.PAUSED:
            return []
        self.state = ProcessState.RUNNING
        late, self.backlog = self.backlog, []
        return late

    def kill(self) -> None:
        """End the process at once. Code of it that is running must be unwound with ``ProcessKilled``."""
        if self.state is ProcessState.DEAD:
            return
        self.state = ProcessState.DEAD
        self.backlog.clear()
        callbacks, self._on_death = self._on_death, []
        world = contextvars.Context()
        for callback in callbacks:
            world.run(callback)


_current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def current_process() -> Process | None:
    """The process whose code is running; ``None`` in the world around the stores."""
    return _current.get()


process_of: Callable[[contextvars.Context], Process | None] = operator.methodcaller("get", _current)
"""The process that a callback belongs to, by its context; ``None`` for one of the world."""
