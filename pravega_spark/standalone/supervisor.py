"""Supervises child processes: starts them in stages, restarts those that die or hang, stops them in reverse order."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service
from pravega_spark.standalone.hang_watch import HangWatch
from pravega_spark.standalone.signals import unblock_signals

restart_delay_min_s: Final = 0.2
restart_delay_max_s: Final = 5.0
stable_after_s: Final = 30.0
"""A child that ran this long starts its next back-off from the shortest delay."""
start_time_max_s: Final = 60.0
"""Until a child serves, from its start or from the last time that it said that it loads its data."""
loading_log_s: Final = 30.0
"""Pause between two messages about a child that loads its data."""
stop_time_max_s: Final = 20.0
ready_poll_s: Final = 0.05
announce_again_s: Final = 5.0
"""Pause after the children could not be announced: the disk of the ready file is full, say."""
log_tail_bytes: Final = 2_000
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class ChildSpec:
    """Describes a child process: its command, its log, and the probe ``ready`` that is asked until it says yes."""

    name: str
    command: Sequence[str]
    log_file: Path
    ready: Callable[[], Awaitable[bool]]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    is_alive: Callable[[], Awaitable[bool]] | None = None
    """Whether the process makes progress; ``None`` where nobody can tell. See ``HangWatch``."""
    is_loading: Callable[[], Awaitable[bool]] | None = None
    """Whether a process that does not serve yet reads its data, which takes as long as it takes; ``None`` for never."""


class ChildProcess:
    """A child of the standalone and its present process."""

    def __init__(self, spec: ChildSpec, inherited: Sequence[int] = ()) -> None:
        """``inherited``: descriptors that the process keeps open."""
        self.spec = spec
        self._inherited = inherited
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self.has_served = False
        """Whether some process of the child was seen to serve."""
        self._turn = asyncio.Lock()
        """Held while the process is being started or stopped: a start under way has no process yet to be stopped."""
        self._is_stopped = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    async def launch(self) -> None:
        """Starts the process; does nothing once the child was stopped."""
        async with self._turn:
            if not self._is_stopped:
                await self._launch()

    async def _launch(self) -> None:
        with self.spec.log_file.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **self.spec.environment},
                preexec_fn=_become_child,
                pass_fds=self._inherited,
                # A terminal's Ctrl-C goes to the supervisor alone, which stops the children in order.
                start_new_session=True,
            )

    async def look(self) -> None:
        """Asks a process that was not seen to serve once more."""
        is_there = self.process is not None and self.process.returncode is None
        self.has_served = self.has_served or (is_there and await self.spec.ready())

    async def stop(self) -> None:
        """Ends the process, for good."""
        async with self._turn:
            self._is_stopped = True
        process = self.process
        if process is None or process.returncode is not None:
            return
        process.send_signal(self.spec.stop_signal)
        try:
            async with asyncio.timeout(stop_time_max_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def log_tail(self) -> str:
        data = self.spec.log_file.read_bytes()[-log_tail_bytes:]
        return data.decode(errors="replace")


class Supervisor(Service):
    """The service that owns the children. Those of a stage start at the same time, once those before it serve.

    ``changed`` is called with it by ``announce``, and when a child was restarted and serves again. A child that hangs
    for ``hung_after_s`` is killed and started again; 0 for never. ``inherited``: descriptors that all children keep
    open.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[ChildSpec]],
        changed: Callable[[Supervisor], None],
        clock: Clock | None = None,
        hung_after_s: float = 0,
        inherited: Sequence[int] = (),
    ) -> None:
        super().__init__("supervisor")
        self._stages = [[ChildProcess(spec, inherited) for spec in stage] for stage in stages]
        self.children = [child for stage in self._stages for child in stage]
        self._changed = changed
        self._clock = clock or SystemClock()
        self._hung_after_s = hung_after_s

    def pids(self) -> dict[str, int]:
        return {child.spec.name: child.pid for child in self.children if child.pid is not None}

    def announce(self) -> None:
        self._changed(self)

    def has_served(self, names: Collection[str]) -> bool:
        """Whether one of these children was seen to serve, by the end of a stop at the latest."""
        return any(child.has_served for child in self.children if child.name in names)

    async def on_start(self) -> None:
        for stage in self._stages:
            try:
                async with asyncio.TaskGroup() as starts:
                    for child in stage:
                        starts.create_task(self._bring_up(child))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _bring_up(self, child: ChildProcess) -> None:
        await child.launch()
        await self._until_ready(child)
        child.has_served = True
        self.spawn(self._watch(child), child.spec.name)
        if child.spec.is_alive is not None and self._hung_after_s:
            watch = HangWatch(child, child.spec.is_alive, self._hung_after_s, self._clock)
            self.spawn(watch.run(), f"{child.spec.name}-hang-watch")

    async def on_stop(self) -> None:
        for child in self.children:  # a start that was cut short may not have asked for long
            await child.look()
        for child in reversed(self.children):
            await child.stop()

    async def _until_ready(self, child: ChildProcess) -> None:
        """Waits until the child serves; ``ConfigurationError`` with the end of its log if it does not."""
        deadline_s = self._clock.monotonic_s() + start_time_max_s
        logged_s = self._clock.monotonic_s()
        while not await child.spec.ready():
            now_s = self._clock.monotonic_s()
            if child.spec.is_loading is not None and await child.spec.is_loading():
                deadline_s = now_s + start_time_max_s
                if now_s - logged_s >= loading_log_s:
                    logged_s = now_s
                    self.log.info("child loads its data", child=child.name)
            process = child.process
            if process is not None and process.returncode is not None:
                raise ConfigurationError(
                    f"{child.spec.name} ended with status {process.returncode}:\n{child.log_tail()}"
                )
            if self._clock.monotonic_s() > deadline_s:
                raise ConfigurationError(
                    f"{child.spec.name} does not serve after {start_time_max_s:.0f} s, see {child.spec.log_file}"
                )
            await self._clock.sleep(ready_poll_s)

    async def _watch(self, child: ChildProcess) -> None:
        delay_s = restart_delay_min_s
        while True:
            started_s = self._clock.monotonic_s()
            process = child.process
            if process is None:
                return
            status = await process.wait()
            if not self.is_running and self.state.value != "starting":
                return
            if self._clock.monotonic_s() - started_s > stable_after_s:
                delay_s = restart_delay_min_s
            self.log.warning("child died, starting it again", child=child.spec.name, status=status, delay_s=delay_s)
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, restart_delay_max_s)
            child.restarts += 1
            try:
                await child.launch()
            except OSError as error:
                # Its log cannot be opened, or there is no memory for a process: the others work on meanwhile.
                self.log.warning("child not started, trying again", child=child.spec.name, error=str(error))
                continue
            self.spawn(self._announce(child), f"{child.spec.name}-ready")

    async def _announce(self, child: ChildProcess) -> None:
        process = child.process
        while process is not None and process.returncode is None:
            pause_s = ready_poll_s
            if await child.spec.ready():
                if not self.is_running:  # the start of the others announces all
                    return
                try:
                    self.announce()
                    return
                except OSError as error:
                    # A ready file that is late harms less than services that end.
                    self.log.warning("children not announced, trying again", error=str(error))
                    pause_s = announce_again_s
            await self._clock.sleep(pause_s)


def _become_child() -> None:
    """Unblocks signals, and asks the kernel to end this process when its parent ends: a killed standalone leaves
    nothing behind."""
    unblock_signals()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
