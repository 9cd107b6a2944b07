"""Puts appends of one plog that are called out of their turn into the order of their offsets.

An append that begins behind the end of the plog is held until those before it were sent. Neighbours are merged into one
run, which leaves at once when the gap before it closes. What is held was never sent: it may be refused at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import PravegaError, Unavailable
from segment_service.plog.append_quorum import OnAppended
from segment_service.plog.plog_client import AppendRefused

held_appends_max: Final = 64
"""Appends of one plog that wait for their turn."""
held_bytes_max: Final = 4 * 1024 * 1024
"""Bytes of one plog's appends that wait for their turn; as many as a log has in flight."""
held_s_max: Final = 5.0
"""How long an append waits for those before it."""


@dataclass(slots=True, eq=False)
class _Held:
    send: Callable[[], None]
    done: OnAppended


@dataclass(slots=True, eq=False)
class _Run:
    """Appends that follow one another."""

    start: int
    end: int
    timer: asyncio.TimerHandle | None = None
    appends: list[_Held] = field(default_factory=list)


class AppendTurns:
    """The turns of one plog. ``end`` is where the next append goes."""

    def __init__(self) -> None:
        self.end = 0
        self.held_bytes = 0
        self._runs: list[_Run] = []
        """In the order of their offsets, with gaps between them."""

    @property
    def held_appends(self) -> int:
        return sum(len(run.appends) for run in self._runs)

    def hold(self, start: int, size: int, send: Callable[[], None], done: OnAppended) -> None:
        """Hold an append that does not begin at ``end``.

        ``AppendRefused`` to ``done``, with the end in it, for one that begins before the end, overlaps another or finds
        no room; ``Unavailable`` once it waited too long.
        """
        refusal = self._refusal(start, size)
        if refusal:
            done(AppendRefused(f"append at offset {start} of a plog that ends at {self.end}: {refusal}"))
            return
        run = next((run for run in self._runs if run.end == start), None) or self._new_run(start)
        after = next((one for one in self._runs if one.start == start + size), None)
        run.appends.append(_Held(send, done))
        run.end += size
        self.held_bytes += size
        if after is not None:
            self._merge(run, after)

    def release(self) -> None:
        """Send what is held from ``end`` on, after an append that moved it."""
        while self._runs and self._runs[0].start <= self.end:
            run = self._runs.pop(0)
            self._cancel(run)
            self.held_bytes -= run.end - run.start
            if run.start < self.end:  # an append reached over the gap
                self._refuse(run, AppendRefused(f"offset {run.start} of a plog that ends at {self.end}: too late"))
                continue
            self.end = run.end
            for append in run.appends:
                append.send()

    def _refusal(self, start: int, size: int) -> str:
        if start < self.end:
            return "what lies there was sent before"
        if any(start < run.end and run.start < start + size for run in self._runs):
            return "it overlaps one that waits for its turn"
        if self.held_appends >= held_appends_max:
            return f"{held_appends_max} appends wait for their turn already"
        if self.held_bytes + size > held_bytes_max:
            return f"more than {held_bytes_max} bytes would wait for their turn"
        return ""

    def _new_run(self, start: int) -> _Run:
        run = _Run(start, start)
        run.timer = asyncio.get_running_loop().call_later(held_s_max, self._expire, run)
        self._runs.append(run)
        self._runs.sort(key=lambda one: one.start)
        return run

    def _merge(self, before: _Run, after: _Run) -> None:
        self._cancel(after)
        self._runs.remove(after)
        before.appends += after.appends
        before.end = after.end

    def _cancel(self, run: _Run) -> None:
        if run.timer is not None:
            run.timer.cancel()

    def _expire(self, run: _Run) -> None:
        self._runs.remove(run)
        self.held_bytes -= run.end - run.start
        self._refuse(run, Unavailable(f"the appends before offset {run.start} did not come within {held_s_max} s"))

    def _refuse(self, run: _Run, error: PravegaError) -> None:
        for append in run.appends:
            append.done(error)
