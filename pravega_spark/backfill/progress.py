"""How far a job is: rows, rate and remaining time, on a line that is rewritten on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TextIO

tick_s: Final = 0.5
plain_line_every_s: Final = 10.0
"""How often a line is written where it cannot be rewritten (a log)."""


@dataclass(frozen=True, slots=True)
class State:
    """``fraction``: of all work, in this and former runs; None while it is not known. ``rows``: of this run."""

    rows: int | None = None
    fraction: float | None = None


class Meter:
    """Rate and remaining time from a row of states. The rate of this run says how long the rest takes."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._first_fraction: float | None = None

    def line(self, state: State, now_s: float) -> str:
        elapsed_s = max(now_s - self._start_s, 1e-9)
        parts = []
        if state.fraction is not None:
            parts.append(f"{100 * state.fraction:5.1f} %")
        if state.rows is not None:
            parts.append(f"{state.rows:,} rows, {state.rows / elapsed_s:,.0f} rows/s")
        remaining_s = self._remaining_s(state.fraction, elapsed_s)
        if remaining_s is not None:
            parts.append(f"about {duration_text(remaining_s)} left")
        return ", ".join([*parts, f"{duration_text(elapsed_s)} so far"])

    def _remaining_s(self, fraction: float | None, elapsed_s: float) -> float | None:
        if fraction is None:
            return None
        if self._first_fraction is None:
            self._first_fraction = fraction
        gained = fraction - self._first_fraction
        return None if gained <= 0 else elapsed_s * max(0.0, 1 - fraction) / gained


class Display:
    """Asks for the state twice a second while it is open, and shows it. Its thread ends with it."""

    def __init__(self, ask: Callable[[], State], output: TextIO = sys.stderr) -> None:
        self._ask = ask
        self._output = output
        self._meter = Meter(time.monotonic())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backfill-progress", daemon=True)
        self._rewrites = output.isatty()

    def __enter__(self) -> Display:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._rewrites:
            self._output.write("\n")

    def _run(self) -> None:
        shown_s = time.monotonic()
        while not self._stop.wait(tick_s):
            now_s = time.monotonic()
            if not self._rewrites and now_s - shown_s < plain_line_every_s:
                continue
            try:
                line = self._meter.line(self._ask(), now_s)
            except Exception as error:  # Whatever it is: a job does not fail because it cannot be watched.
                line = f"progress is not known: {error}"
            self._output.write(f"\r\x1b[K{line}" if self._rewrites else f"{line}\n")
            self._output.flush()
            shown_s = now_s


def duration_text(seconds: float) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
